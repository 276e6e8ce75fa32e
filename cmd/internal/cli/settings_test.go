package cli

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/aviary-asr/aviary"
)

// read gives the settings for a command line and an environment.
func read(args []string, env map[string]string) (Settings, error) {
	s := DefaultSettings()
	table := settingsTable(&s)
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addFlags(flags, table)
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	err := applyVariables(flags, table, func(k string) (string, bool) { v, ok := env[k]; return v, ok })
	return s, errors.Join(err, s.Validate())
}

func TestSettings(t *testing.T) {
	tests := []struct {
		name  string
		args  []string
		env   map[string]string
		check func(Settings) bool
	}{
		{"defaults are the operators' proven ones", nil, nil, func(s Settings) bool {
			return s.Attention == aviary.AttentionPolicy{Mode: "auto", Threshold: 300 * time.Second, Context: aviary.AttentionContext{Left: 128, Right: 128}} &&
				s.MaxDuration == time.Hour && s.SafetyFactor == 0.8 && s.Listen == "127.0.0.1:8080"
		}},
		{"a variable", nil, map[string]string{"PARAKEET_ATTENTION_MODE": "Local"}, func(s Settings) bool { return s.Attention.Mode == "local" }},
		{"a flag over a variable", []string{"--attention-mode=full"}, map[string]string{"PARAKEET_ATTENTION_MODE": "local"},
			func(s Settings) bool { return s.Attention.Mode == "full" }},
		{"seconds", nil, map[string]string{"PARAKEET_MAX_FILE_DURATION": "90.5"}, func(s Settings) bool { return s.MaxDuration == 90500*time.Millisecond }},
		{"a duration", nil, map[string]string{"PARAKEET_MAX_FILE_DURATION": "1h30m"}, func(s Settings) bool { return s.MaxDuration == 90*time.Minute }},
		{"days", []string{"--retention-audio", "1.5d"}, map[string]string{"AVIARY_RETENTION_TRANSCRIPT": "30d"},
			func(s Settings) bool {
				return s.RetentionAudio == 36*time.Hour && s.RetentionTranscript == 720*time.Hour
			}},
		{"everything is kept unless told otherwise", nil, nil, func(s Settings) bool { return s.RetentionAudio == 0 && s.RetentionTranscript == 0 }},
		{"no guard", nil, map[string]string{"PARAKEET_MAX_FILE_DURATION": "0"}, func(s Settings) bool { return s.MaxDuration == 0 }},
		{"a context with L and R", nil, map[string]string{"PARAKEET_LOCAL_ATTN_CONTEXT": "64, 32"},
			func(s Settings) bool { return s.Attention.Context == aviary.AttentionContext{Left: 64, Right: 32} }},
		{"bf16 by a number", nil, map[string]string{"PARAKEET_BF16": "1"}, func(s Settings) bool { return s.BF16 == BF16On }},
		{"bytes", []string{"--max-upload-bytes", "1.5GiB"}, nil, func(s Settings) bool { return s.MaxUploadBytes == 3<<29 }},
		{"limits of a caller", []string{"--max-tenant-jobs=5", "--max-tenant-audio=2h"}, nil,
			func(s Settings) bool { return s.MaxTenantJobs == 5 && s.MaxTenantAudio == 2*time.Hour }},
		{"a header", nil, map[string]string{"AVIARY_TENANT_HEADER": " X-Caller "}, func(s Settings) bool { return s.TenantHeader == "X-Caller" }},
		{"no header", nil, map[string]string{"AVIARY_TENANT_HEADER": ""}, func(s Settings) bool { return s.TenantHeader == "" }},
		{"level", []string{"--log-level=debug"}, nil, func(s Settings) bool { return s.LogLevel == slog.LevelDebug }},
		{"beyond loopback when told so", []string{"--listen=:80", "--insecure-no-auth"}, nil, func(s Settings) bool { return s.InsecureNoAuth }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := read(tt.args, tt.env)
			if err != nil || !tt.check(s) {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// TestWrongSettingsAreFatalAndNameThemselves: what cannot be is refused with the name of its variable or flag.
func TestWrongSettingsAreFatalAndNameThemselves(t *testing.T) {
	for variable, values := range map[string][]string{
		"PARAKEET_ATTENTION_MODE":      {"", "sliding"},
		"PARAKEET_AUTO_ATTN_THRESHOLD": {"0", "-1", "NaN", "inf", "soon"},
		"PARAKEET_LOCAL_ATTN_CONTEXT":  {"128", "0,128", "-1,-1", "a,b", "1,2,3"},
		"PARAKEET_MAX_FILE_DURATION":   {"NaN", "+Inf", "-3600", "1e300", ""},
		"PARAKEET_BF16":                {"perhaps"},
		"AVIARY_RETENTION_AUDIO":       {"-1d", "d", "1dd", "Infd", "1e300d", "200000d", "1d12h"},
		"PARAKEET_VRAM_SAFETY_FACTOR":  {"0", "1.1", "NaN"},
		"AVIARY_MAX_UPLOAD_BYTES":      {"-1", "NaN", "many", "1e30"},
		"AVIARY_MAX_QUEUE_JOBS":        {"-1", "1.5"},
		"AVIARY_MAX_TENANT_JOBS":       {"-1", "1.5"},
		"AVIARY_MAX_TENANT_AUDIO":      {"-1", "NaN"},
		"AVIARY_TENANT_HEADER":         {"X Caller", "X-Caller:", "Bürö"},
		"AVIARY_LISTEN":                {"0.0.0.0:8080", ":8080", "192.0.2.1:80", "[::]:80"},
		"AVIARY_LOG_LEVEL":             {"loud"},
		"AVIARY_LOG_FORMAT":            {"xml"},
	} {
		for _, value := range values {
			_, err := read(nil, map[string]string{variable: value})
			if err == nil || !strings.Contains(err.Error(), variable) || exitCode(err) != exitUsage {
				t.Errorf("%s=%q: %v, exit %d", variable, value, err, exitCode(err))
			}
		}
	}
	if _, err := read([]string{"--attention-mode=sliding"}, nil); err == nil || !strings.Contains(err.Error(), "attention-mode") {
		t.Errorf("a wrong flag: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	s := DefaultSettings()
	got := warnings(settingsTable(&s), []string{"PATH=/bin", "PARAKEET_TORCH_COMPILE=1", "AVIARY_LISTEN=x", "AVIARY_SERVICE_HOST=10.0.0.1",
		"AVIARY_PORT_8080_TCP=tcp://", "AVIARY_SERVER=x", "PARAKEET_ATENTION_MODE=full"})
	if len(got) != 2 || !strings.Contains(got[0], "PARAKEET_TORCH_COMPILE") || !strings.Contains(got[1], "PARAKEET_ATENTION_MODE") {
		t.Errorf("%q", got)
	}
}

// TestEverySettingHasItsFlagByRule holds the flags to their variables, so that one tells the other.
func TestEverySettingHasItsFlagByRule(t *testing.T) {
	s := DefaultSettings()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addFlags(flags, settingsTable(&s))
	flags.VisitAll(func(f *pflag.Flag) {
		suffix := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if !strings.Contains(f.Usage, "[PARAKEET_"+suffix+"]") && !strings.Contains(f.Usage, "[AVIARY_"+suffix+"]") {
			t.Errorf("--%s: its help %q does not name its variable", f.Name, f.Usage)
		}
	})
}
