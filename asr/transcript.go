package asr

import (
	"context"
	"math"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/logmel"
	"github.com/aviary-asr/aviary/asr/parakeet"
	"github.com/aviary-asr/aviary/asr/vocab"
)

// encoderFrame is the length of an encoder frame.
const encoderFrame = 8 * logmel.Hop * time.Second / logmel.SampleRate

// segmentGap is the pause that ends a segment, 2 s: models without punctuation have no other sign.
const segmentGap = vocab.EncoderFrames(2 * time.Second / encoderFrame)

// assemble turns tokens into text, words and segments.
func (e *Engine) assemble(tokens []parakeet.Token, r *Result) {
	list := make([]vocab.Token, len(tokens))
	ids := make([]int, len(tokens))
	for i, k := range tokens {
		start := vocab.EncoderFrames(k.Frame)
		list[i] = vocab.Token{ID: k.ID, Start: start, End: start + vocab.EncoderFrames(k.Duration)}
		ids[i] = k.ID
		r.Tokens = append(r.Tokens, Token{list[i], e.pieces[k.ID].Text})
	}
	r.Text = e.words.Text(ids)
	r.Words = e.words.Words(list)
	r.Segments = vocab.Segments(r.Words, segmentGap)
}

// Transcribe is Run with the result in the form in which it is stored.
func (e *Engine) Transcribe(ctx context.Context, pcm aviary.PCM, mode aviary.AttentionMode, progress func(time.Duration)) (aviary.Transcript, error) {
	r, err := e.Run(ctx, pcm, mode, progress)
	if err != nil {
		return aviary.Transcript{}, err
	}
	return e.transcript(r), nil
}

func (e *Engine) transcript(r Result) aviary.Transcript {
	audio := duration(r.Plan.Samples)
	t := aviary.Transcript{
		Text:            r.Text,
		Language:        e.language,
		DurationSeconds: seconds(audio),
		Segments:        []aviary.Segment{},
		Engine: aviary.Engine{
			Model: e.options.Model, ModelSHA256: e.sha256, DType: e.options.DType.String(), Device: e.shape.Backend.Name, Software: e.options.Software,
			Attention: attention(r.Plan),
		},
		Usage: aviary.Usage{AudioSeconds: seconds(audio), DeviceSeconds: seconds(r.Timings.Total)},
	}
	if r.Timings.Total > 0 {
		t.Usage.RTFx = math.Round(100*audio.Seconds()/r.Timings.Total.Seconds()) / 100
	}
	for i, s := range r.Segments {
		segment := aviary.Segment{ID: i, Start: at(s.Start, audio), End: at(s.End, audio), Text: s.Text, Words: []aviary.Word{}}
		for _, w := range s.Words {
			segment.Words = append(segment.Words, aviary.Word{Word: w.Text, Start: at(w.Start, audio), End: at(w.End, audio)})
		}
		t.Segments = append(t.Segments, segment)
	}
	return t
}

func attention(p Plan) aviary.Attention {
	a := aviary.Attention{Mode: p.Mode, Reason: p.Reason}
	if p.Mode == aviary.AttentionLocal {
		a.Context = []int{p.Attention.Left, p.Attention.Right}
	}
	return a
}

// at is a time in seconds. The last token's duration may reach past the end of the audio; nothing was said there.
func at(f vocab.EncoderFrames, audio time.Duration) float64 {
	return seconds(min(f.Time(encoderFrame), audio))
}

// seconds rounds to milliseconds.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
