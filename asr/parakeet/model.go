package parakeet

import (
	"fmt"
	"slices"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
)

// Model is the weights of a checkpoint on a backend. It does not change after Load.
type Model struct {
	Config Config

	backend ml.Backend
	info    ml.Info
	dtype   ml.DType
	weights []NamedWeight

	subsampling subsampling
	blocks      []block
	projection  ml.Linear // of the encoder's output into the joint network
	prediction  predictionNetwork
	joint       jointNetwork
	ctc         ml.Linear
}

// Load uploads a checkpoint's weights to a backend, the matrices in the given format and everything small in float32. It is strict: a
// tensor that is missing, not expected or of another shape is an error, and the error names all of them.
func Load(c checkpoint.Config, t checkpoint.Tensors, b ml.Backend, dtype ml.DType) (*Model, error) {
	config, err := NewConfig(c)
	if err != nil {
		return nil, err
	}
	config = config.biasesOf(t)
	if err := checkTensors(config, t); err != nil {
		return nil, err
	}
	info := b.Info()
	if !slices.Contains(info.DTypes, dtype) {
		return nil, fmt.Errorf("parakeet: %s has no weights in %v", info.Name, dtype)
	}
	l := &loader{backend: b, info: info, tensors: t, dtype: dtype}
	m := newModel(config, l)
	m.weights = l.weights
	if l.err != nil {
		m.Close()
		return nil, fmt.Errorf("parakeet: load: %w", l.err)
	}
	return m, nil
}

// newModel loads, or counts, all weights.
func newModel(c Config, l *loader) *Model {
	m := &Model{Config: c, backend: l.backend, info: l.info, dtype: l.dtype}
	m.subsampling = loadSubsampling(c, l)
	for i := range c.Layers {
		m.blocks = append(m.blocks, loadBlock(c, l, blockName(i)))
	}
	if c.Kind.HasTransducer() {
		m.projection = l.linear("encoder_projector", c.JointHidden, c.DModel, true, ml.UseLinear)
		m.prediction = loadPredictionNetwork(c, l)
		m.joint = loadJointNetwork(c, l)
	}
	if c.Kind.HasCTC() {
		m.ctc = l.linear("ctc_head", c.tokens(), c.DModel, true, ml.UseLinear)
	}
	return m
}

// DType is the format of the matrices.
func (m *Model) DType() ml.DType { return m.dtype }

// Weights lists every uploaded weight.
func (m *Model) Weights() []NamedWeight { return m.weights }

// Close releases the weights.
func (m *Model) Close() {
	for _, w := range m.weights {
		w.Release()
	}
	m.weights = nil
}
