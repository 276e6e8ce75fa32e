package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// The parsers of settings. Each says in its error what it accepts.

// parseSeconds reads a number of seconds, or of days as in 30d, or a Go duration; all finite and not negative.
func parseSeconds(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	const day = 24 * 60 * 60
	number, factor := s, 1.0
	if days, ok := strings.CutSuffix(s, "d"); ok {
		number, factor = days, day
	}
	if f, err := strconv.ParseFloat(number, 64); err == nil {
		d, ok := aviary.Seconds(f * factor)
		if !ok {
			return 0, fmt.Errorf("%q is not a finite, non-negative time", s)
		}
		return d, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is neither a number of seconds nor a duration such as 1h30m or 30d", s)
	}
	return d, nil
}

func parseBF16(s string) (BF16, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "auto", "":
		return BF16Auto, nil
	case "1", "true", "on", "yes":
		return BF16On, nil
	case "0", "false", "off", "no":
		return BF16Off, nil
	}
	return "", fmt.Errorf("%q is none of auto, on, off, true, false, 1, 0", s)
}

func parseModel(s string) (string, error) {
	if s == "bundled" {
		return "", nil
	}
	return s, nil
}

// parseHeaderName reads the name of an HTTP header, or nothing.
func parseHeaderName(s string) (string, error) {
	s = strings.TrimSpace(s)
	for _, r := range s {
		word := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		if !word && !strings.ContainsRune("!#$%&'*+-.^_`|~", r) {
			return "", fmt.Errorf("%q is no name of an HTTP header", s)
		}
	}
	return s, nil
}

func parseText(s string) (string, error) {
	if strings.TrimSpace(s) == "" {
		return "", errors.New("it is empty")
	}
	return s, nil
}

func parseBool(s string) (bool, error) {
	on, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("%q is none of true, false, 1, 0", s)
	}
	return on, nil
}

// parseAddress checks the form; whether the address can be listened on, listening tells.
func parseAddress(s string) (string, error) {
	_, port, err := net.SplitHostPort(s)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
		return "", fmt.Errorf("%q is not host:port with a port from 0 to 65535", s)
	}
	return s, nil
}

func parseAddressOrNone(s string) (string, error) {
	if s == "" {
		return "", nil
	}
	return parseAddress(s)
}

func parseEmbedded(s string) (string, error) {
	if s == "embedded" {
		return "", nil
	}
	return s, nil
}

func parseFraction(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || f <= 0 || f > 1 {
		return 0, fmt.Errorf("%q is not a number above 0 and up to 1", s)
	}
	return f, nil
}

// units of bytes, longest suffix first.
var units = []struct {
	suffix string
	bytes  float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

func parseBytes(s string) (int64, error) {
	number, factor := strings.TrimSpace(s), 1.0
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if n := f * factor; err == nil && n >= 0 && n < math.MaxInt64 {
		return int64(n), nil
	}
	return 0, fmt.Errorf("%q is not a number of bytes such as 500MB or 4GiB", s)
}

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a whole number from 0 on", s)
	}
	return n, nil
}

func parseLogFormat(s string) (string, error) {
	if s == "text" || s == "json" {
		return s, nil
	}
	return "", fmt.Errorf("%q is neither text nor json", s)
}

func parseLevel(s string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return 0, fmt.Errorf("%q is none of debug, info, warn, error", s)
	}
	return level, nil
}
