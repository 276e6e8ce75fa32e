package asr

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/checkpoint/checkpointtest"
	"github.com/aviary-asr/aviary/asr/logmel"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
	"github.com/aviary-asr/aviary/asr/parakeet/parakeettest"
)

// write writes a tiny random model in a format and returns its path.
func write(t testing.TB, m checkpointtest.Model, nemo bool) string {
	t.Helper()
	dir := t.TempDir()
	if !nemo {
		if err := checkpointtest.WriteHuggingFace(dir, m); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	path := filepath.Join(dir, "tiny.nemo")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(checkpointtest.WriteNemo(f, m), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// open makes an engine of a checkpoint's path.
func open(t testing.TB, path string, b ml.Backend, o Options) *Engine {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // read only
	e, err := New(t.Context(), c, b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func random(t testing.TB) string {
	return write(t, parakeettest.Model(parakeettest.Tiny(), checkpoint.F32, 1), false)
}

// tones is audio that keeps a random model busy: sines that come and go, and noise.
func tones(n logmel.Samples) aviary.PCM {
	pcm := make(aviary.PCM, n)
	seed := uint32(12345)
	for i := range pcm {
		seed = seed*1664525 + 1013904223
		t := float64(i) / logmel.SampleRate
		u := float64(seed>>8)/(1<<24) - 0.5
		pcm[i] = float32(0.1*u + 0.3*math.Sin(2*math.Pi*440*t)*math.Sin(2*math.Pi*1.5*t) + 0.2*math.Sin(2*math.Pi*(500+300*math.Sin(3*t))*t))
	}
	return pcm
}

// TestFormats: the same model in both containers gives the same tokens, texts and times.
func TestFormats(t *testing.T) {
	m := parakeettest.Model(parakeettest.Tiny(), checkpoint.F32, 1)
	pcm := tones(5 * second)
	var results []Result
	for _, nemo := range []bool{false, true} {
		e := open(t, write(t, m, nemo), cpu.New(cpu.Options{Threads: 2}), Options{})
		r, err := e.Run(t.Context(), pcm, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Tokens) == 0 || r.Text == "" || len(r.Words) == 0 || len(r.Segments) == 0 {
			t.Fatalf("%d tokens, text %q, %d words, %d segments: the random model says nothing", len(r.Tokens), r.Text, len(r.Words), len(r.Segments))
		}
		results = append(results, r)
	}
	if !slices.Equal(results[0].Tokens, results[1].Tokens) || results[0].Text != results[1].Text {
		t.Errorf("Hugging Face gives %q, NeMo %q", results[0].Text, results[1].Text)
	}
}

// TestTranscript: times rise, stay within the audio, and everything says where it comes from.
func TestTranscript(t *testing.T) {
	e := open(t, random(t), cpu.New(cpu.Options{}), Options{Model: "parakeet-tdt-0.6b-v2", Software: "aviary test"})
	for _, n := range []logmel.Samples{second / 2, 3*second + 77, 10 * second} {
		tr, err := e.Transcribe(t.Context(), tones(n), aviary.AttentionLocal, nil)
		if err != nil {
			t.Fatal(err)
		}
		length := float64(n) / logmel.SampleRate
		if math.Abs(tr.DurationSeconds-length) > 0.001 || tr.Usage.AudioSeconds != tr.DurationSeconds {
			t.Errorf("%d samples last %v s, %v s used", n, tr.DurationSeconds, tr.Usage.AudioSeconds)
		}
		last := 0.0
		for i, s := range tr.Segments {
			if s.ID != i || s.Start < last || s.End < s.Start || len(s.Words) == 0 {
				t.Errorf("segment %d: %+v after %v", i, s, last)
			}
			for _, w := range s.Words {
				if w.Start < last || w.End < w.Start || w.End > length || w.Confidence != nil {
					t.Errorf("word %+v after %v in %v s", w, last, length)
				}
				last = w.Start
			}
		}
		want := aviary.Engine{
			Model: "parakeet-tdt-0.6b-v2", DType: "float32", Device: "cpu", Software: "aviary test", ModelSHA256: tr.Engine.ModelSHA256,
			Attention: aviary.Attention{Mode: aviary.AttentionLocal, Context: []int{128, 128}, Reason: "local was asked for"},
		}
		if got := tr.Engine; !slices.Equal(got.Attention.Context, want.Attention.Context) || len(got.ModelSHA256) != 64 {
			t.Errorf("engine %+v", got)
		} else if got.Attention.Context, want.Attention.Context = nil, nil; !sameEngine(got, want) {
			t.Errorf("engine %+v, want %+v", got, want)
		}
		if tr.Language != "en" || tr.Usage.RTFx <= 0 || tr.Usage.DeviceSeconds <= 0 {
			t.Errorf("language %q, usage %+v", tr.Language, tr.Usage)
		}
	}
}

func sameEngine(a, b aviary.Engine) bool {
	return a.Model == b.Model && a.DType == b.DType && a.Device == b.Device && a.Software == b.Software && a.ModelSHA256 == b.ModelSHA256 &&
		a.Attention.Mode == b.Attention.Mode && a.Attention.Reason == b.Attention.Reason
}

// TestShortAudio: less than a frame is an empty transcript and no error; a frame, and one sample more or less, is computed.
func TestShortAudio(t *testing.T) {
	e := open(t, random(t), cpu.New(cpu.Options{Threads: 1}), Options{})
	for _, n := range []logmel.Samples{0, 1, 159, 160, 161, 319, 320, 1279, 1280, 1281, 2560} {
		tr, err := e.Transcribe(t.Context(), tones(n), "", nil)
		if err != nil {
			t.Errorf("%d samples: %v", n, err)
		}
		if n < 160 && (tr.Text != "" || len(tr.Segments) != 0 || tr.Segments == nil) {
			t.Errorf("%d samples: %+v", n, tr)
		}
	}
}

// TestSilence: digital silence has no variance in any band; nothing becomes NaN.
func TestSilence(t *testing.T) {
	e := open(t, random(t), cpu.New(cpu.Options{Threads: 1}), Options{})
	if _, err := e.Run(t.Context(), make(aviary.PCM, 3*second), "", nil); err != nil {
		t.Error(err)
	}
}

// TestPlanHoldsAgainstBackend: what was predicted before the run is what the backend held, never less and at most 1.5 MiB more; and a
// run that is warm allocates nothing on the host beyond the predicted features, whatever the attention: no score matrix can hide.
func TestPlanHoldsAgainstBackend(t *testing.T) {
	lengths := []logmel.Samples{second, 20 * second, 80 * second}
	if raceDetector {
		lengths = lengths[:2]
	}
	c := parakeettest.Tiny()
	c.DModel, c.FFDim, c.Layers = 64, 256, 1
	path := write(t, parakeettest.Model(c, checkpoint.F32, 2), false)
	for _, dtype := range []ml.DType{ml.Float32, ml.BFloat16} {
		for _, mode := range []aviary.AttentionMode{aviary.AttentionFull, aviary.AttentionLocal} {
			e := open(t, path, cpu.New(cpu.Options{Threads: 2}), Options{DType: dtype})
			for _, length := range lengths {
				pcm := tones(length)
				r, err := e.Run(t.Context(), pcm, mode, nil)
				if err != nil {
					t.Fatal(err)
				}
				m, held := r.Plan.Memory, e.Memory()
				predicted := m.WeightBytes + m.BufferBytes + m.ScratchBytes
				if got := held.Total(); got > predicted || predicted-got > 3<<19 {
					t.Errorf("%v, %s, %d s: %+v held, %+v predicted", dtype, mode, length/second, held, m)
				}
				if held.WeightBytes != m.WeightBytes {
					t.Errorf("%v: weights of %d bytes, %d predicted", dtype, held.WeightBytes, m.WeightBytes)
				}
				host := allocated(func() {
					if _, err := e.Run(t.Context(), pcm, mode, nil); err != nil {
						t.Fatal(err)
					}
				})
				if features := m.HostBytes - 4*int64(length); host > features {
					t.Errorf("%v, %s, %d s: a warm run allocated %d bytes on the host, %d predicted", dtype, mode, length/second, host, features)
				}
			}
		}
	}
}

// allocated counts the bytes that f allocates.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// TestPlanHoldsAgainstHeap compares with what the Go heap really grows by.
func TestPlanHoldsAgainstHeap(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates, too")
	}
	c := parakeettest.Tiny()
	c.DModel, c.FFDim, c.Layers = 128, 512, 1
	path := write(t, parakeettest.Model(c, checkpoint.F32, 2), false)
	for mode, length := range map[aviary.AttentionMode]logmel.Samples{aviary.AttentionFull: 60 * second, aviary.AttentionLocal: 300 * second} {
		pcm := tones(length)
		before := liveHeap()
		e := open(t, path, cpu.New(cpu.Options{Threads: 2}), Options{})
		r, err := e.Run(t.Context(), pcm, mode, nil)
		if err != nil {
			t.Fatal(err)
		}
		grown := liveHeap() - before
		m := r.Plan.Memory
		predicted := m.WeightBytes + m.BufferBytes + m.ScratchBytes
		if grown > predicted || grown < predicted*9/10-1<<20 {
			t.Errorf("%s: the heap grew by %d bytes, %d predicted", mode, grown, predicted)
		}
		runtime.KeepAlive(pcm)
	}
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBudget: auto falls back to local where full would not fit, full is refused before it starts, and a model too big is not even loaded.
func TestBudget(t *testing.T) {
	path := random(t)
	const length = 60 * second
	probe := open(t, path, cpu.New(cpu.Options{Threads: 1}), Options{})
	peak := func(mode aviary.AttentionMode) int64 {
		p, err := probe.Plan(length, mode)
		if err != nil {
			t.Fatal(err)
		}
		return p.Memory.PeakBytes()
	}
	budget := (peak(aviary.AttentionFull) + peak(aviary.AttentionLocal)) / 2
	e := open(t, path, cpu.New(cpu.Options{Threads: 1}), Options{Settings: Settings{Policy: aviary.DefaultAttentionPolicy(), MemoryBudget: budget}})
	if r, err := e.Run(t.Context(), tones(length), aviary.AttentionAuto, nil); err != nil || r.Plan.Mode != aviary.AttentionLocal {
		t.Errorf("auto: %v, %+v", err, r.Plan)
	}
	before := e.Memory()
	if _, err := e.Run(t.Context(), tones(length), aviary.AttentionFull, nil); aviary.CodeOf(err) != aviary.CodeDeviceOutOfMemory {
		t.Errorf("full: %v", err)
	}
	if e.Memory() != before {
		t.Error("a refused run took memory")
	}
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // read only
	_, err = New(t.Context(), c, cpu.New(cpu.Options{Threads: 1}), Options{Settings: Settings{MemoryBudget: 100_000}})
	if aviary.CodeOf(err) != aviary.CodeDeviceOutOfMemory {
		t.Errorf("a model that does not fit: %v", err)
	}
}

// TestErrors have codes.
func TestErrors(t *testing.T) {
	path := random(t)
	e := open(t, path, cpu.New(cpu.Options{Threads: 1}), Options{})
	broken := tones(second)
	broken[777] = float32(math.NaN())
	if _, err := e.Run(t.Context(), broken, "", nil); aviary.CodeOf(err) != aviary.CodeAudioBroken {
		t.Errorf("NaN in the audio: %v", err)
	}
	small := open(t, path, cpu.New(cpu.Options{Threads: 1, MaxBytes: 1 << 20}), Options{})
	if _, err := small.Run(t.Context(), tones(60*second), "", nil); aviary.CodeOf(err) != aviary.CodeDeviceOutOfMemory {
		t.Errorf("a device that is smaller than planned: %v", err)
	}
	if _, err := small.Run(t.Context(), tones(second), "", nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	m := parakeettest.Model(parakeettest.Tiny(), checkpoint.F32, 1)
	fill := m.Fill
	m.Fill = func(i checkpoint.TensorInfo, offset int, dst []float32) {
		fill(i, offset, dst)
		if i.Name == "joint.head.weight" {
			for k := range dst {
				dst[k] = float32(math.NaN())
			}
		}
	}
	damaged := open(t, write(t, m, false), cpu.New(cpu.Options{Threads: 1}), Options{})
	if _, err := damaged.Run(t.Context(), tones(second), "", nil); aviary.CodeOf(err) != aviary.CodeEngineFailed {
		t.Errorf("NaN in the weights: %v", err)
	}
}

// TestCancel stops an hour with full attention wherever it is, features included.
func TestCancel(t *testing.T) {
	if testing.Short() {
		t.Skip("an hour of audio")
	}
	e := open(t, random(t), cpu.New(cpu.Options{}), Options{})
	pcm := make(aviary.PCM, 3600*second)
	copy(pcm, tones(20*second))
	for _, after := range []time.Duration{0, 20 * time.Millisecond, time.Second} {
		best := time.Hour
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			var asked time.Time
			timer := time.AfterFunc(after, func() {
				asked = time.Now()
				cancel()
			})
			_, err := e.Run(ctx, pcm, aviary.AttentionFull, nil)
			took := time.Since(asked)
			timer.Stop()
			cancel()
			if !errors.Is(err, context.Canceled) || aviary.CodeOf(err) != aviary.CodeCanceled {
				t.Fatalf("canceled after %v: %v", after, err)
			}
			if best = min(best, took); best < 250*time.Millisecond {
				break
			}
		}
		if best > 250*time.Millisecond {
			t.Errorf("canceled after %v: stopped %v later", after, best)
		}
	}
	if _, err := e.Run(t.Context(), tones(second), "", nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestProgress rises to the whole audio.
func TestProgress(t *testing.T) {
	e := open(t, random(t), cpu.New(cpu.Options{Threads: 1}), Options{})
	pcm := tones(4 * second)
	var got []time.Duration
	if _, err := e.Run(t.Context(), pcm, "", func(d time.Duration) { got = append(got, d) }); err != nil {
		t.Fatal(err)
	}
	if len(got) < 4 || !slices.IsSorted(got) || got[len(got)-1] != pcm.Duration() {
		t.Errorf("progress %v of %v", got, pcm.Duration())
	}
}

// TestDecoders: a hybrid decodes with either head; a head that is not there is refused.
func TestDecoders(t *testing.T) {
	path := random(t)
	var texts []string
	for _, d := range []Decoder{DecoderDefault, DecoderTransducer, DecoderCTC} {
		e := open(t, path, cpu.New(cpu.Options{Threads: 1}), Options{Decoder: d})
		r, err := e.Run(t.Context(), tones(3*second), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, r.Text)
	}
	if texts[0] != texts[1] || texts[1] == texts[2] {
		t.Errorf("default %q, transducer %q, CTC %q", texts[0], texts[1], texts[2])
	}
	config := parakeettest.Tiny()
	config.Kind = checkpoint.KindTDT
	c, err := checkpoint.Open(write(t, parakeettest.Model(config, checkpoint.BF16, 1), false))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // read only
	if _, err := New(t.Context(), c, cpu.New(cpu.Options{Threads: 1}), Options{Decoder: DecoderCTC}); err == nil {
		t.Error("CTC without a CTC head")
	}
}

// TestSwitchKeepsWeights: the weights of an engine are the same, in the same format, after runs with either attention.
func TestSwitchKeepsWeights(t *testing.T) {
	for _, dtype := range []ml.DType{ml.Float32, ml.BFloat16} {
		e := open(t, random(t), cpu.New(cpu.Options{Threads: 2}), Options{DType: dtype})
		before := slices.Clone(e.Weights())
		formats := func() (list []ml.DType) {
			for _, w := range e.Weights() {
				list = append(list, w.DType())
			}
			return list
		}
		want := formats()
		if !slices.Contains(want, dtype) {
			t.Errorf("no weight is %v", dtype)
		}
		var texts []string
		for _, mode := range []aviary.AttentionMode{aviary.AttentionFull, aviary.AttentionLocal, aviary.AttentionFull, aviary.AttentionLocal} {
			r, err := e.Run(t.Context(), tones(30*second), mode, nil)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, r.Text)
			if !slices.Equal(formats(), want) || !slices.Equal(e.Weights(), before) {
				t.Errorf("%v: the weights changed", dtype)
			}
		}
		if texts[0] != texts[2] || texts[1] != texts[3] {
			t.Errorf("%v: the texts depend on what ran before", dtype)
		}
	}
}

func TestLookUp(t *testing.T) {
	if m, ok := LookUp("parakeet-tdt-0.6b-v3"); !ok || len(m.Languages) != 25 {
		t.Errorf("v3: %v %v", m, ok)
	}
	if _, ok := LookUp("unheard-of"); ok {
		t.Error("an unknown model is known")
	}
	for id, want := range map[string]string{"digits": "en", "parakeet-tdt-0.6b-v3": "", "unheard-of": ""} {
		if got := languageOf(id); got != want {
			t.Errorf("%s: language %q, want %q", id, got, want)
		}
	}
}

var _ interface { // what gpu.Device wants of an engine
	Transcribe(context.Context, aviary.PCM, aviary.AttentionMode, func(time.Duration)) (aviary.Transcript, error)
	Close() error
} = (*Engine)(nil)
