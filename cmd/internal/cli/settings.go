package cli

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/aviary-asr/aviary"
)

// Settings is the whole configuration of a server process. DefaultSettings is the only place for defaults, settingsTable the only place
// that knows flags and variables, Validate the only place that checks them together.
type Settings struct {
	// The engine and the guard: the operators' names.
	Attention    aviary.AttentionPolicy
	MaxDuration  time.Duration
	BF16         BF16
	Model        string // empty: the bundled one
	Device       string
	SafetyFactor float64

	Listen, MetricsListen string
	RedisURL              string // empty: embedded
	DatabaseURL           string // empty: SQLite in DataDir
	BlobURL               string // empty: files in DataDir
	DataDir               string

	FFmpeg     string // auto: the one in PATH, if there is one; off; or a name or path that must be there
	MaxDecodes int    // uploads that are decoded at the same time; 0 is one for each core

	MaxUploadBytes int64
	MaxQueueJobs   int
	MaxQueueAudio  time.Duration
	MaxTenantJobs  int           // of one caller, waiting or running
	MaxTenantAudio time.Duration // likewise
	TenantHeader   string        // in which an authenticating proxy names the caller; empty: all callers are one
	DrainTimeout   time.Duration

	RetentionAudio, RetentionTranscript time.Duration // from the end of a job on; 0 is for ever

	InsecureNoAuth bool // listen beyond loopback though nothing authenticates callers

	LogFormat string
	LogLevel  slog.Level
}

// BF16 says whether weights are held in bfloat16.
type BF16 string

// The choices of BF16. Auto follows the device: on a CPU without bfloat16 arithmetic that is float32.
const (
	BF16Auto BF16 = "auto"
	BF16On   BF16 = "on"
	BF16Off  BF16 = "off"
)

// DefaultSettings is a server on loopback with everything embedded.
func DefaultSettings() Settings {
	return Settings{
		Attention:      aviary.DefaultAttentionPolicy(),
		MaxDuration:    time.Hour,
		BF16:           BF16Auto,
		Device:         "auto",
		SafetyFactor:   0.8,
		Listen:         "127.0.0.1:8080",
		MetricsListen:  "127.0.0.1:9090",
		DataDir:        defaultDataDir(),
		FFmpeg:         ffmpegAuto,
		MaxUploadBytes: 4 << 30,
		DrainTimeout:   60 * time.Second,
		LogFormat:      "text",
		LogLevel:       slog.LevelInfo,
	}
}

// defaultDataDir follows the XDG base directory specification.
func defaultDataDir() string {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "aviary")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "aviary-data"
	}
	return filepath.Join(home, ".local", "share", "aviary")
}

// setting ties a variable and its flag to a field.
type setting struct {
	variable string
	usage    string
	value    pflag.Value
}

// flagName is the rule that leads from a variable to its flag: PARAKEET_ATTENTION_MODE is --attention-mode.
func flagName(variable string) string {
	_, name, _ := strings.Cut(variable, "_")
	return strings.ToLower(strings.ReplaceAll(name, "_", "-"))
}

// settingsTable lists all settings of a server process.
func settingsTable(s *Settings) []setting {
	return []setting{
		{"PARAKEET_ATTENTION_MODE", "encoder attention: full, local, or auto (by duration)",
			parsed(&s.Attention.Mode, aviary.ParseAttentionMode, "mode")},
		{"PARAKEET_AUTO_ATTN_THRESHOLD", "auto uses local attention for audio this long or longer (seconds, or 5m)",
			parsed(&s.Attention.Threshold, parseSeconds, "duration")},
		{"PARAKEET_LOCAL_ATTN_CONTEXT", "left,right encoder frames of 80 ms that local attention sees",
			parsed(&s.Attention.Context, aviary.ParseAttentionContext, "left,right")},
		{"PARAKEET_MAX_FILE_DURATION", "longest audio accepted (seconds, or 1h30m); 0 turns the guard off",
			parsed(&s.MaxDuration, parseSeconds, "duration")},
		{"PARAKEET_BF16", "bfloat16 weights: auto (where the device computes in it), on, off", parsed(&s.BF16, parseBF16, "auto|on|off")},
		{"PARAKEET_MODEL", "a model: bundled, a directory or a .nemo file", parsed(&s.Model, parseModel, "path")},
		{"PARAKEET_DEVICE", "devices: auto, cpu, cuda:0, cuda:0,2, cuda:all", parsed(&s.Device, parseText, "device")},
		{"PARAKEET_VRAM_SAFETY_FACTOR", "part of the device's memory that a job may be predicted to need",
			parsed(&s.SafetyFactor, parseFraction, "0..1")},
		{"AVIARY_LISTEN", "address of the API", parsed(&s.Listen, parseAddress, "host:port")},
		{"AVIARY_INSECURE_NO_AUTH", "listen beyond loopback although anybody who reaches the API may use it", parsed(&s.InsecureNoAuth, parseBool, "bool")},
		{"AVIARY_METRICS_LISTEN", "address of /metrics; empty turns it off", parsed(&s.MetricsListen, parseAddressOrNone, "host:port")},
		{"AVIARY_REDIS_URL", "redis:// or rediss:// URL; embedded runs one in this process", parsed(&s.RedisURL, parseEmbedded, "url")},
		{"AVIARY_DATABASE_URL", "database; default SQLite in the data directory", parsed(&s.DatabaseURL, parseText, "url")},
		{"AVIARY_BLOB_URL", "uploads; default files in the data directory", parsed(&s.BlobURL, parseText, "url")},
		{"AVIARY_DATA_DIR", "data directory", parsed(&s.DataDir, parseText, "dir")},
		{"AVIARY_FFMPEG", "decodes what Aviary does not decode itself: auto (the one in PATH, if any), off, or a name or path",
			parsed(&s.FFmpeg, parseText, "path")},
		{"AVIARY_MAX_DECODES", "uploads decoded at the same time; 0 is one for each core", parsed(&s.MaxDecodes, parseCount, "n")},
		{"AVIARY_MAX_UPLOAD_BYTES", "largest upload (bytes, or 500MB, 4GiB); 0 is no limit", parsed(&s.MaxUploadBytes, parseBytes, "bytes")},
		{"AVIARY_MAX_QUEUE_JOBS", "most jobs that may wait; 0 is no limit", parsed(&s.MaxQueueJobs, parseCount, "n")},
		{"AVIARY_MAX_QUEUE_AUDIO", "most audio that may wait (seconds, or 100h); 0 is no limit", parsed(&s.MaxQueueAudio, parseSeconds, "duration")},
		{"AVIARY_MAX_TENANT_JOBS", "most jobs that one caller may have waiting or running; 0 is no limit", parsed(&s.MaxTenantJobs, parseCount, "n")},
		{"AVIARY_MAX_TENANT_AUDIO", "most audio that one caller may have waiting or running (seconds, or 100h); 0 is no limit",
			parsed(&s.MaxTenantAudio, parseSeconds, "duration")},
		{"AVIARY_TENANT_HEADER", "header that names the caller, for fairness and limits; it is believed, so a proxy must set it and remove what callers send",
			parsed(&s.TenantHeader, parseHeaderName, "name")},
		{"AVIARY_RETENTION_AUDIO", "how long recordings are kept after their job ended (30d, 12h, seconds); without one a job cannot be retried; looked at every 10 minutes; 0 is for ever",
			parsed(&s.RetentionAudio, parseSeconds, "duration")},
		{"AVIARY_RETENTION_TRANSCRIPT", "how long transcripts are kept after their job ended; then its recording goes too, if it is still there; looked at every 10 minutes; 0 is for ever",
			parsed(&s.RetentionTranscript, parseSeconds, "duration")},
		{"AVIARY_DRAIN_TIMEOUT", "how long a stopping worker lets its job run on", parsed(&s.DrainTimeout, parseSeconds, "duration")},
		{"AVIARY_LOG_FORMAT", "text or json", parsed(&s.LogFormat, parseLogFormat, "format")},
		{"AVIARY_LOG_LEVEL", "debug, info, warn or error", parsed(&s.LogLevel, parseLevel, "level")},
	}
}

// withoutEffect are variables of the Python service that operators may still have set.
var withoutEffect = []string{"PARAKEET_TORCH_COMPILE", "PARAKEET_CUDA_GRAPHS"}

// addFlags gives every setting its flag, and says the variable's name in its help.
func addFlags(flags *pflag.FlagSet, table []setting) {
	for _, s := range table {
		f := flags.VarPF(s.value, flagName(s.variable), "", s.usage+" ["+s.variable+"]")
		if s.value.Type() == "bool" {
			f.NoOptDefVal = "true"
		}
	}
}

// applyVariables sets from the environment what no flag has set. A wrong value is fatal and names its variable.
func applyVariables(flags *pflag.FlagSet, table []setting, lookup func(string) (string, bool)) error {
	for _, s := range table {
		text, ok := lookup(s.variable)
		if !ok || flags.Changed(flagName(s.variable)) {
			continue
		}
		if err := s.value.Set(text); err != nil {
			return usageError(fmt.Errorf("%s=%q: %w", s.variable, text, err))
		}
	}
	return nil
}

// warnings names variables of ours that have no effect: those of the Python service, and misspelled ones.
func warnings(table []setting, environ []string) []string {
	known := map[string]bool{"AVIARY_SERVER": true, "AVIARY_TOKEN": true, roleVariable: true}
	for _, s := range table {
		known[s.variable] = true
	}
	var list []string
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		ours := strings.HasPrefix(name, "PARAKEET_") || strings.HasPrefix(name, "AVIARY_") && !isServiceLink(name)
		switch {
		case !ours || known[name] || strings.HasPrefix(name, "AVIARY_TEST_"):
		case slices.Contains(withoutEffect, name):
			list = append(list, name+" has no effect here: it configures the Python service")
		default:
			list = append(list, name+" is not a known variable and has no effect")
		}
	}
	return list
}

// isServiceLink recognizes what Kubernetes puts into every container for a Service called aviary.
func isServiceLink(name string) bool {
	return strings.HasPrefix(name, "AVIARY_SERVICE_") || strings.HasPrefix(name, "AVIARY_PORT")
}

// Validate checks what can only be seen in pairs.
func (s Settings) Validate() error {
	if s.Attention.Threshold <= 0 {
		return usageError(fmt.Errorf("PARAKEET_AUTO_ATTN_THRESHOLD: %v is not positive; to always use local attention set PARAKEET_ATTENTION_MODE=local", s.Attention.Threshold))
	}
	if s.Listen == s.MetricsListen && !strings.HasSuffix(s.Listen, ":0") {
		return usageError(fmt.Errorf("AVIARY_LISTEN and AVIARY_METRICS_LISTEN are both %s", s.Listen))
	}
	if !s.InsecureNoAuth && !loopback(s.Listen) {
		return usageError(fmt.Errorf("AVIARY_LISTEN=%s is beyond loopback, and the API has no keys yet: put a proxy that authenticates in front of a loopback address, or say --insecure-no-auth", s.Listen))
	}
	return nil
}

// loopback says whether only this machine can reach an address.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// parsedValue is a pflag.Value over any field with a parser.
type parsedValue[T any] struct {
	field *T
	parse func(string) (T, error)
	kind  string
}

func parsed[T any](field *T, parse func(string) (T, error), kind string) pflag.Value {
	return &parsedValue[T]{field, parse, kind}
}

func (v *parsedValue[T]) Set(s string) error {
	value, err := v.parse(s)
	if err == nil {
		*v.field = value
	}
	return err
}

func (v *parsedValue[T]) Type() string { return v.kind }

func (v *parsedValue[T]) String() string {
	if v == nil || v.field == nil {
		return ""
	}
	switch x := any(*v.field).(type) {
	case slog.Level:
		return strings.ToLower(x.String())
	case time.Duration:
		return shortDuration(x)
	default:
		return fmt.Sprint(x)
	}
}

// shortDuration prints whole seconds as a number, as the variables take it.
func shortDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10)
	}
	return d.String()
}
