package parakeet

import "github.com/aviary-asr/aviary/asr/ml"

// jointNetwork turns an encoder frame and the prediction network's output into logits of the pieces, blank, and the durations:
// head(ReLU(f + p)). The logits are never normalized: neither choice depends on it, and probabilities of the durations would vanish
// beside a confident token.
type jointNetwork struct {
	head ml.Linear
}

func loadJointNetwork(c Config, l *loader) jointNetwork {
	return jointNetwork{head: l.linear("joint.head", c.tokens()+len(c.Durations), c.JointHidden, true, ml.UseLinear)}
}
