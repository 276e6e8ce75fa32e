package checkpoint

// Config is the shape of a model and of its front end, in one form for both
// layouts. What can be read off the tensors has been, and agrees with what the
// configuration file says; otherwise Open failed.
type Config struct {
	Kind Kind

	// Front end. Window and Hop are in samples.
	SampleRate  int // Hz
	Mels        int
	NFFT        int
	Window      int
	Hop         int
	Preemphasis float64

	// Encoder.
	DModel              int
	FFDim               int
	Layers              int
	Heads               int
	ConvKernel          int
	SubsamplingFactor   int
	SubsamplingChannels int
	// AttentionBias says that the linear layers of the attention (but for the
	// positions') and of the feed-forward modules have biases; ConvBias, that the
	// convolution module's three convolutions do. The subsampling always does.
	AttentionBias bool
	ConvBias      bool
	// ScaleInput multiplies the subsampling's output by sqrt(DModel).
	ScaleInput bool
	// AttentionLeft and AttentionRight are the window the checkpoint was shipped
	// with, in encoder frames; -1, -1 is full attention.
	AttentionLeft, AttentionRight int

	// Heads. The vocabulary has VocabSize pieces, and BlankID = VocabSize.
	VocabSize int
	BlankID   int

	// Transducer; zero without one. Durations is empty for RNN-T.
	Durations   []int // in encoder frames, by duration index
	MaxSymbols  int   // per encoder frame, at most
	PredHidden  int
	PredLayers  int
	JointHidden int
}

// Kind says which heads a model has.
type Kind string

// The kinds of Parakeet models. A hybrid has a transducer (TDT, or RNN-T where
// Durations is empty) and a CTC head on one encoder.
const (
	KindTDT    Kind = "tdt"
	KindRNNT   Kind = "rnnt"
	KindCTC    Kind = "ctc"
	KindHybrid Kind = "hybrid"
)

// HasTransducer reports whether there are prediction and joint networks.
func (k Kind) HasTransducer() bool { return k == KindTDT || k == KindRNNT || k == KindHybrid }

// HasCTC reports whether there is a CTC head.
func (k Kind) HasCTC() bool { return k == KindCTC || k == KindHybrid }
