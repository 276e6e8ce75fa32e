package aviary

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// AttentionMode is the operator's or the caller's choice of encoder attention.
type AttentionMode string

// The attention modes. Auto is resolved per job to full or local by asr.NewPlan.
const (
	AttentionAuto  AttentionMode = "auto"
	AttentionFull  AttentionMode = "full"
	AttentionLocal AttentionMode = "local"
)

// ParseAttentionMode accepts auto, full and local in any case.
func ParseAttentionMode(s string) (AttentionMode, error) {
	switch m := AttentionMode(strings.ToLower(strings.TrimSpace(s))); m {
	case AttentionAuto, AttentionFull, AttentionLocal:
		return m, nil
	}
	return "", fmt.Errorf("attention mode %q is none of auto, full, local", s)
}

// AttentionContext is the window of local attention in encoder frames of 80 ms: a query hears Left frames of the past, itself, and Right
// frames of the future.
type AttentionContext struct{ Left, Right int }

// ParseAttentionContext reads "left,right", each between 1 and 100,000.
func ParseAttentionContext(s string) (AttentionContext, error) {
	l, r, ok := strings.Cut(s, ",")
	left, errL := strconv.Atoi(strings.TrimSpace(l))
	right, errR := strconv.Atoi(strings.TrimSpace(r))
	const most = 100_000
	if !ok || errL != nil || errR != nil || left < 1 || right < 1 || left > most || right > most {
		return AttentionContext{}, fmt.Errorf("attention context %q is not left,right with both from 1 to %d", s, most)
	}
	return AttentionContext{Left: left, Right: right}, nil
}

func (c AttentionContext) String() string { return fmt.Sprintf("%d,%d", c.Left, c.Right) }

// AttentionPolicy decides, with the length of the audio and the memory budget, how a job is encoded. It is configured once per deployment;
// a job may override Mode.
type AttentionPolicy struct {
	Mode      AttentionMode
	Threshold time.Duration // auto chooses local at or above it
	Context   AttentionContext
}

// DefaultAttentionPolicy is auto at 300 s with a context of 128,128, the operators' proven setting.
func DefaultAttentionPolicy() AttentionPolicy {
	return AttentionPolicy{Mode: AttentionAuto, Threshold: 300 * time.Second, Context: AttentionContext{128, 128}}
}

// Attention is what an attempt ran with, and why.
type Attention struct {
	Mode    AttentionMode `json:"mode"` // full or local
	Context []int         `json:"context,omitempty"`
	Reason  string        `json:"reason"`
}
