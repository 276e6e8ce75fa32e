package asr

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
	"github.com/aviary-asr/aviary/asr/parakeet"
	"github.com/aviary-asr/aviary/asr/wer"
	bundled "github.com/aviary-asr/aviary/models"
	"github.com/aviary-asr/aviary/probe"
)

// digits opens the bundled model.
func digits(t testing.TB, o Options) *Engine {
	t.Helper()
	c, err := checkpoint.OpenFS(bundled.Digits())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() // read only
	o.Model = bundled.DigitsName
	e, err := New(t.Context(), c, cpu.New(cpu.Options{}), o)
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

// recording decodes a bundled recording.
func recording(t testing.TB, name string) aviary.PCM {
	t.Helper()
	raw, err := fs.ReadFile(bundled.SampleFiles(), name)
	if err != nil {
		t.Fatal(err)
	}
	pcm, err := probe.New(probe.Config{}).Decode(t.Context(), bytes.NewReader(raw), int64(len(raw)), time.Hour)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return pcm
}

// goldenTensor is some rows of a tensor, and the sum of the magnitudes of all.
type goldenTensor struct {
	Shape  []int       `json:"shape"`
	Rows   []int       `json:"rows"`
	AbsSum float64     `json:"abs_sum"`
	Values [][]float32 `json:"values"`
}

// hold compares.
func (g goldenTensor) hold(t *testing.T, what string, got []float32, limit float64) {
	t.Helper()
	if len(g.Rows) == 0 || len(got) != g.Shape[0]*g.Shape[1] {
		t.Fatalf("%s: %d values, want %v", what, len(got), g.Shape)
	}
	worst := 0.0
	for i, r := range g.Rows {
		for c, want := range g.Values[i] {
			worst = max(worst, math.Abs(float64(got[r*g.Shape[1]+c])-float64(want)))
		}
	}
	sum := 0.0
	for _, v := range got {
		sum += math.Abs(float64(v))
	}
	t.Logf("%s: differs by %.3g, limit %.3g; magnitudes %.8g, want %.8g", what, worst, limit, sum, g.AbsSum)
	if !(worst <= limit) || !(math.Abs(sum-g.AbsSum) <= limit*float64(len(got))) {
		t.Fail()
	}
}

// TestDigitsGolden holds every stage of the bundled model on a recording against torch, in float32 on the same weights: the features first, then
// what each stage makes of them, then the tokens.
func TestDigitsGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/digits-golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g struct {
		Sample    string       `json:"sample"`
		Samples   int          `json:"samples"`
		Features  goldenTensor `json:"features"`
		PreEncode goldenTensor `json:"pre_encode"`
		Encoder   goldenTensor `json:"encoder"`
		TDT       [][3]int     `json:"tdt"`
		CTC       []int        `json:"ctc_argmax"`
		LogProbs  goldenTensor `json:"ctc_log_probs"`
		Context   [2]int       `json:"local_context"`
		Local     goldenTensor `json:"encoder_local"`
		TDTLocal  [][3]int     `json:"tdt_local"`
	}
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	e := digits(t, Options{})
	pcm := recording(t, g.Sample)
	if len(pcm) != g.Samples {
		t.Fatalf("%s has %d samples, want %d", g.Sample, len(pcm), g.Samples)
	}
	features, err := e.extractor.Extract(t.Context(), pcm)
	if err != nil {
		t.Fatal(err)
	}
	g.Features.hold(t, "enc.mel.in", features.Data, 2e-4)
	in := parakeet.LogMel{Frames: parakeet.Frames(features.Frames), Values: features.Data}

	full, tokens := e.stages(t, in, parakeet.Full, (*parakeet.Session).DecodeTransducer)
	g.PreEncode.hold(t, "enc.pre_encode.out", full["enc.pre_encode.out"], 1e-4)
	g.Encoder.hold(t, "enc.final", full["enc.final"], 1e-4)
	sameTokens(t, "TDT", tokens, g.TDT)
	ctc, runs := e.stages(t, in, parakeet.Full, (*parakeet.Session).DecodeCTC)
	logProbs, best := logSoftmax(ctc["dec.ctc.0"], g.LogProbs.Shape[1])
	g.LogProbs.hold(t, "CTC log-probabilities", logProbs, 1e-4)
	for i := range best {
		if best[i] != g.CTC[i] {
			t.Errorf("CTC frame %d: %d, want %d", i, best[i], g.CTC[i])
		}
	}
	if len(runs) == 0 {
		t.Error("CTC says nothing")
	}

	local, tokens := e.stages(t, in, parakeet.Attention{Left: g.Context[0], Right: g.Context[1]}, (*parakeet.Session).DecodeTransducer)
	g.Local.hold(t, "enc.final, local", local["enc.final"], 1e-4)
	sameTokens(t, "TDT, local", tokens, g.TDTLocal)
}

// decoder is one of a session's decoders.
type decoder func(*parakeet.Session, context.Context) ([]parakeet.Token, error)

// stages runs a pass and a decoder with dumps.
func (e *Engine) stages(t *testing.T, in parakeet.LogMel, a parakeet.Attention, decode decoder) (map[string][]float32, []parakeet.Token) {
	t.Helper()
	all := map[string][]float32{}
	e.session.Hooks.Dump = func(stage string, _, _ int, v []float32) { all[stage] = v }
	defer func() { e.session.Hooks.Dump = nil }()
	if _, err := e.session.Encode(t.Context(), in, a); err != nil {
		t.Fatal(err)
	}
	tokens, err := decode(e.session, t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all, tokens
}

func sameTokens(t *testing.T, what string, got []parakeet.Token, want [][3]int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d tokens, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		if k := got[i]; k.ID != w[0] || int(k.Frame) != w[1] || int(k.Duration) != w[2] {
			t.Errorf("%s: token %d is %+v, want %v", what, i, k, w)
		}
	}
}

// logSoftmax works on rows, and gives the first maximum of each, too.
func logSoftmax(logits []float32, width int) (out []float32, best []int) {
	for at := 0; at < len(logits); at += width {
		row, sum, b := logits[at:at+width], 0.0, 0
		for i, x := range row {
			sum += math.Exp(float64(x))
			if x > row[b] {
				b = i
			}
		}
		for _, x := range row {
			out = append(out, float32(float64(x)-math.Log(sum)))
		}
		best = append(best, b)
	}
	return out, best
}

// digitsWER is the word error rate in percent over all bundled recordings that the model must not exceed with any attention, head or
// format. The model card states what was measured on 500 strings.
const digitsWER = 3.0

// TestDigitsRecognizes transcribes the bundled recordings, people whom the model has not heard say what they say here, as the demo does.
func TestDigitsRecognizes(t *testing.T) {
	list, err := bundled.Samples()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		mode aviary.AttentionMode
		o    Options
		long bool // the recording of 6 minutes, too
	}{
		{"auto", aviary.AttentionAuto, Options{}, true},
		{"full", aviary.AttentionFull, Options{}, true},
		{"local", aviary.AttentionLocal, Options{}, false},
		{"auto, bfloat16", aviary.AttentionAuto, Options{DType: ml.BFloat16}, false},
		{"auto, CTC", aviary.AttentionAuto, Options{Decoder: DecoderCTC}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if raceDetector && c.name != "auto" {
				t.Skip("the race detector sees nothing new here")
			}
			e := digits(t, c.o)
			var total wer.Counts
			modes := map[aviary.AttentionMode]bool{}
			for _, s := range list {
				if s.Seconds > 60 && (testing.Short() || !c.long) || s.Seconds > 7 && raceDetector {
					continue
				}
				pcm := recording(t, s.Name)
				if got := pcm.Duration().Seconds(); math.Abs(got-s.Seconds) > 0.001 {
					t.Errorf("%s lasts %v s, want %v", s.Name, got, s.Seconds)
				}
				tr, err := e.Transcribe(t.Context(), pcm, c.mode, nil)
				if err != nil {
					t.Fatalf("%s: %v", s.Name, err)
				}
				counts := wer.Texts(s.Text, tr.Text)
				t.Logf("%s, %s attention: %d errors in %d words: %.100s", s.Name, tr.Engine.Attention.Mode, counts.Errors(), counts.Words, tr.Text)
				total.Add(counts)
				modes[tr.Engine.Attention.Mode] = true
				checkTimes(t, tr)
			}
			t.Logf("%.2f %% WER on %d words", total.Percent(), total.Words)
			if total.Percent() > digitsWER {
				t.Errorf("%.2f %% WER, at most %v %%", total.Percent(), digitsWER)
			}
			if c.mode == aviary.AttentionAuto && c.long && len(modes) != 2 && !testing.Short() && !raceDetector {
				t.Errorf("auto chose only %v", modes)
			}
		})
	}
}

// checkTimes: words do not overlap, and nobody says a digit in less than 80 ms or more than 2 s.
func checkTimes(t *testing.T, tr aviary.Transcript) {
	t.Helper()
	last, words := 0.0, 0
	for _, s := range tr.Segments {
		for _, w := range s.Words {
			words++
			if w.Start < last-0.001 || w.End-w.Start > 2 || w.End > tr.DurationSeconds+0.001 {
				t.Errorf("word %+v after %v, in %v s", w, last, tr.DurationSeconds)
			}
			last = w.Start
		}
	}
	if want := len(strings.Fields(tr.Text)); words != want {
		t.Errorf("%d words in segments, %d in the text", words, want)
	}
}

// TestDigitsHearNothing: silence and faint noise give no words.
func TestDigitsHearNothing(t *testing.T) {
	e := digits(t, Options{})
	length := 10 * second
	if raceDetector {
		length = second
	}
	noise := make(aviary.PCM, length)
	seed := uint32(99)
	for i := range noise {
		seed = seed*1664525 + 1013904223
		noise[i] = (float32(seed>>8)/(1<<24) - 0.5) * 0.02
	}
	for name, pcm := range map[string]aviary.PCM{"silence": make(aviary.PCM, length), "noise": noise} {
		for _, mode := range []aviary.AttentionMode{aviary.AttentionFull, aviary.AttentionLocal} {
			tr, err := e.Transcribe(t.Context(), pcm, mode, nil)
			if err != nil || tr.Text != "" || len(tr.Segments) != 0 {
				t.Errorf("%s, %s attention: %q, %v", name, mode, tr.Text, err)
			}
		}
	}
}

// BenchmarkDigits transcribes 9 seconds.
func BenchmarkDigits(b *testing.B) {
	e := digits(b, Options{})
	pcm := recording(b, "nicolas-12-16k.flac")
	for b.Loop() {
		if _, err := e.Transcribe(b.Context(), pcm, "", nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(pcm.Duration().Seconds()*float64(b.N)/b.Elapsed().Seconds(), "RTFx")
}
