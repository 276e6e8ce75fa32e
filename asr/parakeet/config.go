package parakeet

import (
	"fmt"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// Config is the shape of a model. What can be told from the tensors is taken from them by asr/checkpoint and again by Load: a
// configuration file that says otherwise loses (it is where ports went wrong).
type Config struct {
	checkpoint.Config
}

// normEps is the epsilon of all layer norms and batch norms of the family.
const normEps = 1e-5

// NewConfig refuses shapes that the model code does not cover.
func NewConfig(c checkpoint.Config) (Config, error) {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"mel bins", c.Mels}, {"model width", c.DModel}, {"feed-forward width", c.FFDim}, {"layers", c.Layers},
		{"attention heads", c.Heads}, {"convolution taps", c.ConvKernel}, {"subsampling channels", c.SubsamplingChannels},
		{"vocabulary pieces", c.VocabSize},
	} {
		if n.value <= 0 {
			return Config{}, fmt.Errorf("parakeet: %s: %d", n.name, n.value)
		}
	}
	switch {
	case c.SubsamplingFactor != 8:
		return Config{}, fmt.Errorf("parakeet: subsampling by %d; only 8 is known", c.SubsamplingFactor)
	case c.DModel%2 != 0 || c.DModel%c.Heads != 0:
		return Config{}, fmt.Errorf("parakeet: a width of %d does not go with %d heads and pairs of sine and cosine", c.DModel, c.Heads)
	case c.ConvKernel%2 == 0:
		return Config{}, fmt.Errorf("parakeet: %d convolution taps have no center", c.ConvKernel)
	case c.BlankID != c.VocabSize:
		return Config{}, fmt.Errorf("parakeet: blank is %d and should follow the %d pieces", c.BlankID, c.VocabSize)
	case !c.Kind.HasTransducer() && !c.Kind.HasCTC():
		return Config{}, fmt.Errorf("parakeet: no decoder in a model of kind %q", c.Kind)
	case c.Kind.HasTransducer() && (c.PredHidden <= 0 || c.PredLayers <= 0 || c.JointHidden <= 0 || c.MaxSymbols <= 0):
		return Config{}, fmt.Errorf("parakeet: prediction network %dx%d, joint network %d, %d symbols a frame",
			c.PredLayers, c.PredHidden, c.JointHidden, c.MaxSymbols)
	}
	return Config{c}, nil
}

// Shipped is the attention that the checkpoint was trained or published with.
func (c Config) Shipped() Attention { return Attention{c.AttentionLeft, c.AttentionRight} }

// tokens is the number of classes: the pieces and blank.
func (c Config) tokens() int { return c.VocabSize + 1 }

// melWidths are the mel bins after each stage of the subsampling.
func (c Config) melWidths() (w1, w2, w3 int) {
	half := func(n int) int { return (n-1)/2 + 1 }
	w1 = half(c.Mels)
	w2 = half(w1)
	return w1, w2, half(w2)
}
