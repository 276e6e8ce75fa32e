package aviary

// Transcript is the canonical result of a job; every format is rendered from it. Times are seconds from the start of the audio.
type Transcript struct {
	Text            string    `json:"text"`
	Language        string    `json:"language,omitempty"`
	DurationSeconds float64   `json:"duration_seconds"`
	Segments        []Segment `json:"segments"`
	Warnings        []string  `json:"warnings,omitempty"`
	Engine          Engine    `json:"engine"`
	Usage           Usage     `json:"usage"`
}

// Segment is a stretch of speech, usually a sentence.
type Segment struct {
	ID         int      `json:"id"`
	Start      float64  `json:"start"`
	End        float64  `json:"end"`
	Text       string   `json:"text"`
	Confidence *float64 `json:"confidence,omitempty"` // nil where the engine has none: nothing is invented
	Words      []Word   `json:"words"`
}

// Word is one word with its times.
type Word struct {
	Word       string   `json:"word"`
	Start      float64  `json:"start"`
	End        float64  `json:"end"`
	Confidence *float64 `json:"confidence,omitempty"`
}

// Engine says what produced a transcript.
type Engine struct {
	Model       string    `json:"model"`
	ModelSHA256 string    `json:"model_sha256"`
	Attention   Attention `json:"attention"`
	DType       string    `json:"dtype"` // of the weights: float32 or bfloat16
	Device      string    `json:"device"`
	Software    string    `json:"software"`
}

// Usage is what a transcript cost.
type Usage struct {
	AudioSeconds  float64 `json:"audio_seconds"`
	DeviceSeconds float64 `json:"device_seconds"`
	QueueSeconds  float64 `json:"queue_seconds"`
	RTFx          float64 `json:"rtfx"` // audio seconds per device second
}
