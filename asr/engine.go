// Package asr is the speech recognizer: it plans a run (attention and memory), turns audio into log-mel features, runs a model over all of
// it in one pass, decodes greedily, and puts words, segments and times together.
//
// An [Engine] is one model on one backend. It is handed both: the package may not open devices, read flags, or know about jobs, queues
// and uploads. Which attention a run has is decided in one place, [NewPlan], and nothing below chooses again.
package asr

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/logmel"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/parakeet"
	"github.com/aviary-asr/aviary/asr/vocab"
)

// Options configure an engine.
type Options struct {
	Model    string   // its name, for the transcript
	DType    ml.DType // of the weights; 0 is float32
	Decoder  Decoder
	Settings Settings // a zero Policy is the default one
	Software string   // name and version, for the transcript
}

// Decoder chooses among the heads of a model.
type Decoder uint8

// The decoders.
const (
	DecoderDefault Decoder = iota // the transducer where there is one
	DecoderTransducer
	DecoderCTC
)

// Engine transcribes with one model on one backend. Its methods must be called by one goroutine at a time.
type Engine struct {
	options   Options
	backend   ml.Backend
	model     *parakeet.Model
	session   *parakeet.Session
	extractor *logmel.Extractor
	words     *vocab.Vocabulary
	pieces    []checkpoint.Piece
	shape     Shape
	sha256    string
	language  string
}

// New loads a checkpoint's weights onto a backend. The engine owns the backend from then on, and closes it also when New fails; the
// checkpoint can be closed when New has returned. ctx bounds the loading.
func New(ctx context.Context, c *checkpoint.Checkpoint, b ml.Backend, o Options) (*Engine, error) {
	const op = "asr.open"
	if o.DType == 0 {
		o.DType = ml.Float32
	}
	if o.Settings.Policy == (aviary.AttentionPolicy{}) {
		o.Settings.Policy = aviary.DefaultAttentionPolicy()
	}
	e := &Engine{options: o, backend: b, pieces: c.Pieces, language: languageOf(o.Model)}
	if err := e.load(ctx, c); err != nil {
		return nil, errors.Join(wrap(op, err), e.Close())
	}
	return e, nil
}

func (e *Engine) load(ctx context.Context, c *checkpoint.Checkpoint) error {
	front := c.Config
	var err error
	e.extractor, err = logmel.New(logmel.Config{
		SampleRate: front.SampleRate, Window: front.Window, Hop: front.Hop, NFFT: front.NFFT, Preemphasis: front.Preemphasis, Mels: front.Mels,
	})
	if err != nil {
		return err
	}
	config, err := parakeet.NewConfig(front)
	if err != nil {
		return err
	}
	if e.ctc(config) && !config.Kind.HasCTC() || !e.ctc(config) && !config.Kind.HasTransducer() {
		return fmt.Errorf("the decoder that was asked for is not in a model of kind %q", config.Kind)
	}
	e.shape = Shape{Config: config, DType: e.options.DType, Backend: e.backend.Info(), ScratchBytes: e.backend.Memory().ScratchBytes}
	if err := admit(e.shape, e.options.Settings); err != nil { // before gigabytes are read
		return err
	}
	if e.model, err = parakeet.Load(front, c.Tensors, e.backend, e.options.DType); err != nil {
		return err
	}
	e.shape.Config = e.model.Config // with the biases that there are
	e.session = e.model.NewSession()
	pieces := make([]vocab.Piece, len(c.Pieces))
	for i, p := range c.Pieces {
		pieces[i] = vocab.Piece{Text: p.Text, Type: vocab.PieceType(p.Type)}
	}
	e.words = vocab.New(pieces)
	e.sha256, err = c.SHA256(ctx)
	return err
}

// ctc reports whether the CTC head decodes.
func (e *Engine) ctc(c parakeet.Config) bool {
	return e.options.Decoder == DecoderCTC || e.options.Decoder == DecoderDefault && !c.Kind.HasTransducer()
}

// Close releases the model and closes the backend.
func (e *Engine) Close() error {
	if e.session != nil {
		e.session.Close()
	}
	if e.model != nil {
		e.model.Close()
	}
	e.session, e.model = nil, nil
	return e.backend.Close()
}

// Shape is what plans for this engine depend on.
func (e *Engine) Shape() Shape { return e.shape }

// Memory is what the backend holds at the moment.
func (e *Engine) Memory() ml.Memory { return e.backend.Memory() }

// Weights lists the weights on the device.
func (e *Engine) Weights() []parakeet.NamedWeight { return e.model.Weights() }

// Plan says how a run over n samples would be done. An empty mode is the operator's.
func (e *Engine) Plan(n logmel.Samples, mode aviary.AttentionMode) (Plan, error) {
	set := e.options.Settings
	if mode != "" {
		set.Policy.Mode = mode
	}
	return NewPlan(e.shape, n, set)
}

// Timings are the parts of a run.
type Timings struct {
	LogMel, Encode, Decode, Total time.Duration
}

// Result is what a run found out.
type Result struct {
	Plan     Plan
	Tokens   []Token
	Text     string
	Words    []vocab.Word
	Segments []vocab.Segment
	Timings  Timings
}

// Token is an emitted piece with its place in encoder frames, before punctuation is moved to its word.
type Token struct {
	vocab.Token
	Piece string
}

// Shares of the work, for progress: what is left is the decoder's.
const (
	shareOfLogMel  = 0.02
	shareOfEncoder = 0.93
)

// Run recognizes all of pcm in one pass. progress, which may be nil, hears how much of the audio the work done so far stands for.
// Audio shorter than a frame of 10 ms gives an empty result.
func (e *Engine) Run(ctx context.Context, pcm aviary.PCM, mode aviary.AttentionMode, progress func(time.Duration)) (Result, error) {
	const op = "asr.run"
	plan, err := e.Plan(logmel.Samples(len(pcm)), mode)
	if err != nil {
		return Result{}, err
	}
	r := Result{Plan: plan}
	start := time.Now()
	if plan.Frames > 0 {
		tokens, err := e.recognize(ctx, pcm, plan, &r.Timings, e.reporter(pcm, progress))
		if err != nil {
			return Result{}, wrap(op, err)
		}
		e.assemble(tokens, &r)
	}
	r.Timings.Total = time.Since(start)
	return r, nil
}

// reporter turns a share of the work into audio.
func (e *Engine) reporter(pcm aviary.PCM, progress func(time.Duration)) func(float64) {
	if progress == nil {
		return func(float64) {}
	}
	total := float64(pcm.Duration())
	return func(share float64) { progress(time.Duration(share * total)) }
}

// recognize goes from audio to tokens.
func (e *Engine) recognize(ctx context.Context, pcm aviary.PCM, plan Plan, t *Timings, report func(float64)) ([]parakeet.Token, error) {
	if err := e.session.Reserve(plan.Frames, plan.Attention); err != nil {
		return nil, err
	}
	clock := time.Now()
	lap := func(d *time.Duration) {
		now := time.Now()
		*d, clock = now.Sub(clock), now
	}
	features, err := e.extractor.Extract(ctx, pcm)
	if err != nil {
		if ctx.Err() == nil { // all that the front end refuses is the audio
			err = aviary.WrapError(aviary.CodeAudioBroken, "asr.logmel", err, "The audio has samples that are no numbers.")
		}
		return nil, err
	}
	lap(&t.LogMel)
	report(shareOfLogMel)
	e.session.Hooks.Progress = func(done float64) { report(shareOfLogMel + done*shareOfEncoder) }
	in := parakeet.LogMel{Frames: parakeet.Frames(features.Frames), Values: features.Data}
	if _, err := e.session.Encode(ctx, in, plan.Attention); err != nil {
		return nil, err
	}
	lap(&t.Encode)
	var tokens []parakeet.Token
	if e.ctc(e.shape.Config) {
		tokens, err = e.session.DecodeCTC(ctx)
	} else {
		tokens, err = e.session.DecodeTransducer(ctx)
	}
	lap(&t.Decode)
	if err == nil {
		report(1)
	}
	return tokens, err
}

// wrap gives an error of the layers below the code that users see. An ended context stays what it is.
func wrap(op string, err error) error {
	var coded *aviary.Error
	switch {
	case errors.As(err, &coded), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(err, ml.ErrOutOfMemory):
		return aviary.WrapError(aviary.CodeDeviceOutOfMemory, op, err, "The device ran out of memory.")
	case errors.Is(err, ml.ErrNotFinite):
		return aviary.WrapError(aviary.CodeEngineFailed, op, err, "The model's output is not a number; its weights may be damaged.")
	}
	return aviary.WrapError(aviary.CodeEngineFailed, op, err, "The engine failed.")
}
