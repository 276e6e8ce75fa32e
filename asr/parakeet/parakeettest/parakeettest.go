// Package parakeettest makes models with random weights, for tests and tools: of the right shapes, with activations of order one through any
// number of layers, and nothing learned. Nothing that serves users may import it.
package parakeettest

import (
	"hash/fnv"
	"math"
	"strings"
	"sync"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/checkpoint/checkpointtest"
)

// Tiny is the shape of a hybrid model that a test can run: two blocks of width 32.
func Tiny() checkpoint.Config {
	return checkpoint.Config{
		Kind: checkpoint.KindHybrid, SampleRate: 16000, Mels: 80, NFFT: 512, Window: 400, Hop: 160, Preemphasis: 0.97,
		DModel: 32, FFDim: 128, Layers: 2, Heads: 4, ConvKernel: 9, SubsamplingFactor: 8, SubsamplingChannels: 8,
		AttentionLeft: -1, AttentionRight: -1, VocabSize: 40, BlankID: 40,
		Durations: []int{0, 1, 2, 3, 4}, MaxSymbols: 10, PredHidden: 16, PredLayers: 2, JointHidden: 16,
	}
}

// Model is a checkpoint of shape c with random weights, stored as dtype.
func Model(c checkpoint.Config, dtype checkpoint.DType, seed uint32) checkpointtest.Model {
	return checkpointtest.Model{
		Config: c, Pieces: checkpointtest.Pieces(c.VocabSize), Tensors: checkpointtest.Tensors(c, dtype), Fill: Fill(c, seed),
	}
}

// Fill draws weights from a generator per tensor, seeded with its name: uniform within 2/sqrt(inputs), norms around one, as an
// initialized model has them. The embedding and the heads are larger, so that what is decoded depends on the audio; blank's embedding is
// zero, as in trained models, and its logit is raised so that a random transducer emits a few tokens per second, as for speech.
func Fill(c checkpoint.Config, seed uint32) checkpointtest.Fill {
	var mu sync.Mutex
	states := map[string]uint32{}
	return func(t checkpoint.TensorInfo, offset int, dst []float32) {
		mu.Lock()
		defer mu.Unlock()
		s, ok := states[t.Name]
		if offset == 0 || !ok {
			h := fnv.New32a()
			_, _ = h.Write([]byte(t.Name))
			s = h.Sum32() ^ seed
		}
		for i := range dst {
			s = s*1664525 + 1013904223
			dst[i] = value(c, t, offset+i, float64(s>>8)/(1<<24)-0.5)
		}
		states[t.Name] = s
	}
}

// value places u, uniform in ±0.5, where element i of a tensor belongs.
func value(c checkpoint.Config, t checkpoint.TensorInfo, i int, u float64) float32 {
	fan := 16
	if len(t.Shape) > 1 {
		fan = t.Elements() / t.Shape[0]
	}
	switch {
	case strings.HasSuffix(t.Name, "running_var"):
		return float32(1 + u)
	case strings.Contains(t.Name, "norm") && strings.HasSuffix(t.Name, "weight"):
		return float32(1 + 0.5*u)
	case t.Name == "decoder.embedding.weight" && i >= c.BlankID*c.PredHidden:
		return 0
	case t.Name == "joint.head.weight" && i/c.JointHidden == c.BlankID:
		return 0
	case t.Name == "joint.head.bias" && i == c.BlankID:
		return float32(blankLead(c.VocabSize))
	case strings.HasPrefix(t.Name, "decoder."):
		u *= 4
	case strings.HasPrefix(t.Name, "encoder.subsampling.") && strings.HasSuffix(t.Name, "weight"),
		t.Name == "encoder_projector.weight", t.Name == "joint.head.weight", t.Name == "ctc_head.weight":
		u *= 3
	}
	return float32(2 * u / math.Sqrt(float64(fan)))
}

// blankLead is the logit of blank that lets it win about half of the time against the best of n random pieces, whose logits
// have a standard deviation of about one.
func blankLead(n int) float64 { return 2.2 * math.Sqrt(math.Log(float64(n))) }
