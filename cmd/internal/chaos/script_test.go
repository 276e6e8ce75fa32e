package chaos

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// mode says what the fake engine does with a recording.
type mode int16

// The modes. What an engine does wrong is written into the audio, so that it goes the same way as all audio, and no process needs to be told.
const (
	modeOK      mode = iota // works in slices that look at the context
	modeDeaf                // works for its time and makes progress, but never looks at the context
	modeHang                // never returns, and gives no sign of life
	modeKill                // kills its process with SIGKILL
	modeFault               // reads memory that is not there: the runtime ends the process
	modeExit                // ends its process, as a library may that calls abort
	modeStray               // panics in a goroutine that nobody can guard
	modeFlaky               // fails
	modeBad                 // says that the audio is broken
	modeNoRoom              // says that the device's memory does not suffice
	modeSick                // says that the device failed
	modePanic               // panics
	modeUnknown             // the first that is none
)

func (m mode) String() string {
	return [...]string{"ok", "deaf", "hang", "kill", "fault", "exit", "stray", "flaky", "bad", "noroom", "sick", "panic", "unknown"}[m]
}

// deadly says whether a recording takes its process down, or hangs in it.
func (m mode) deadly() bool { return m >= modeHang && m <= modeStray }

// script is what a recording makes the fake engine do.
type script struct {
	mode  mode
	work  time.Duration // in whole milliseconds
	id    int32         // named in the transcript, so that a doubled or a swapped one is seen
	times int16         // at so many first tries; then it is as modeOK. 0 is always
	audio time.Duration // how long the recording is; 100 ms if zero
}

// always says whether no number of tries helps.
func (s script) always() bool { return s.times == 0 }

func (s script) text() string { return fmt.Sprintf("recording %d", s.id) }

func (s script) String() string {
	return fmt.Sprintf("%s %d (%v, %d)", s.mode, s.id, s.work, s.times)
}

// The first samples of a recording: a mark, then the fields.
const (
	markA, markB  = 0x4156, 0x5259
	scriptSamples = 8
)

func (s script) samples() []int16 {
	length := s.audio
	if length == 0 {
		length = 100 * time.Millisecond
	}
	list := make([]int16, int64(length)*aviary.SampleRate/int64(time.Second))
	work := uint32(s.work.Milliseconds())
	copy(list, []int16{markA, markB, int16(s.mode), int16(work), int16(work >> 16), int16(s.id), int16(uint32(s.id) >> 16), s.times})
	return list
}

// wav is the recording as a file: 16 bits, mono, at the rate that devices hear, so that normalizing changes no sample.
func (s script) wav() []byte {
	samples := s.samples()
	const header = 44
	b := make([]byte, header, header+2*len(samples))
	copy(b, "RIFF")
	binary.LittleEndian.PutUint32(b[4:], uint32(header-8+2*len(samples)))
	copy(b[8:], "WAVEfmt ")
	binary.LittleEndian.PutUint32(b[16:], 16)
	binary.LittleEndian.PutUint16(b[20:], 1)
	binary.LittleEndian.PutUint16(b[22:], 1)
	binary.LittleEndian.PutUint32(b[24:], aviary.SampleRate)
	binary.LittleEndian.PutUint32(b[28:], 2*aviary.SampleRate)
	binary.LittleEndian.PutUint16(b[32:], 2)
	binary.LittleEndian.PutUint16(b[34:], 16)
	copy(b[36:], "data")
	binary.LittleEndian.PutUint32(b[40:], uint32(2*len(samples)))
	for _, v := range samples {
		b = binary.LittleEndian.AppendUint16(b, uint16(v))
	}
	return b
}

// readScript is the reverse, from what a device hears.
func readScript(pcm aviary.PCM) (script, error) {
	if len(pcm) < scriptSamples {
		return script{}, fmt.Errorf("%d samples hold no script", len(pcm))
	}
	var v [scriptSamples]uint16
	for i := range v {
		x := math.Round(float64(pcm[i]) * 32768)
		if x != float64(pcm[i])*32768 {
			return script{}, fmt.Errorf("sample %d is %v, which is no 16-bit sample: the audio did not come through as it was", i, pcm[i])
		}
		v[i] = uint16(int16(x))
	}
	s := script{mode: mode(v[2]), work: time.Duration(uint32(v[3])|uint32(v[4])<<16) * time.Millisecond,
		id: int32(uint32(v[5]) | uint32(v[6])<<16), times: int16(v[7]), audio: pcm.Duration()}
	if v[0] != markA || v[1] != markB || s.mode < 0 || s.mode >= modeUnknown {
		return script{}, fmt.Errorf("the samples %v are no script", v)
	}
	return s, nil
}

func TestScriptsSurviveAsSamples(t *testing.T) {
	for _, want := range []script{
		{audio: time.Second},
		{mode: modeFlaky, work: 90 * time.Second, id: 1 << 20, times: 2, audio: 100 * time.Millisecond},
		{mode: modePanic, work: 65535 * time.Millisecond, id: math.MaxInt32, times: 300, audio: 10 * time.Second},
	} {
		pcm := aviary.PCM{}
		for _, v := range want.samples() {
			pcm = append(pcm, float32(v)/32768)
		}
		if got, err := readScript(pcm); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		pcm[2] += 1e-5
		if _, err := readScript(pcm); err == nil {
			t.Error("a sample that was changed passes")
		}
	}
}
