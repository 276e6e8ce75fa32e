package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aviary-asr/aviary/probe"
	"github.com/aviary-asr/aviary/queue"
	"github.com/aviary-asr/aviary/store"
)

// finding is what doctor says of one thing.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok; note: works, with less; bad: serve would fail
	Detail string `json:"detail"`
	Mend   string `json:"mend,omitempty"`
}

func (a *app) doctorCommand() *cobra.Command {
	table := settingsTable(&a.settings)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what is wrong with this machine and these settings, and say how to mend it",
		Long: `Doctor looks at what serve needs, with the settings that serve would have: variables, data directory, disk, model, device, ffmpeg, Redis and
the addresses. It changes nothing but for a file that it writes and removes again. The exit code is 1 if something would keep serve from
working, and 2 if a setting cannot be read at all.`,
		Example: "  aviary doctor\n  AVIARY_REDIS_URL=redis://cache:6379 aviary doctor --json",
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := applyVariables(cmd.Flags(), table, a.Lookup); err != nil {
				return err
			}
			return a.doctor(cmd.Context(), warnings(table, a.Environ()))
		},
	}
	addFlags(cmd.Flags(), table)
	return cmd
}

// doctorTime bounds each check.
const doctorTime = 15 * time.Second

func (a *app) doctor(ctx context.Context, strange []string) error {
	var list []finding
	for _, w := range strange {
		list = append(list, finding{"variable", "note", w, "Unset it."})
	}
	for _, check := range []func(context.Context) finding{
		a.checkSettings, a.checkDataDir, a.checkModel, a.checkFFmpeg, a.checkRedis, a.checkAddresses,
	} {
		bounded, cancel := context.WithTimeout(ctx, doctorTime)
		list = append(list, check(bounded))
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	t, bad := &table{header: []string{"check", "status", "detail", "mend"}}, 0
	for _, f := range list {
		if f.Status == "bad" {
			bad++
		}
		t.add(f.Check, f.Status, f.Detail, f.Mend)
	}
	if a.Terminal(a.Out) && !a.json {
		a.printFindings(list)
	} else if err := a.result(list, t); err != nil {
		return err
	}
	if bad > 0 {
		return &exitError{exitOther, fmt.Errorf("%d of %d checks failed", bad, len(list))}
	}
	return nil
}

// printFindings is for people: sentences do not fit into a table.
func (a *app) printFindings(list []finding) {
	for _, f := range list {
		fmt.Fprintf(a.Out, "%-4s  %s: %s\n", f.Status, f.Check, printable(f.Detail))
		if f.Mend != "" {
			fmt.Fprintf(a.Out, "      -> %s\n", f.Mend)
		}
	}
}

func (a *app) checkSettings(context.Context) finding {
	f := finding{Check: "settings", Status: "ok", Detail: fmt.Sprintf("attention %s, local from %s s on by auto, longest recording %s s",
		a.settings.Attention.Mode, shortDuration(a.settings.Attention.Threshold), shortDuration(a.settings.MaxDuration))}
	if err := a.settings.Validate(); err != nil {
		return finding{f.Check, "bad", explain(err), "Change the setting that is named."}
	}
	if err := store.CheckURLs(a.settings.DatabaseURL, a.settings.BlobURL); err != nil {
		return finding{f.Check, "bad", err.Error(), "Change AVIARY_DATABASE_URL or AVIARY_BLOB_URL."}
	}
	if a.settings.MaxDuration == 0 {
		return finding{f.Check, "note", "the duration guard is off: a recording of any length reaches a device", "Set PARAKEET_MAX_FILE_DURATION."}
	}
	return f
}

// checkDataDir writes and removes a file where the data are, or would be.
func (a *app) checkDataDir(ctx context.Context) finding {
	dir := a.settings.DataDir
	f := finding{Check: "data directory", Status: "ok", Detail: dir}
	at := dir
	for { // the deepest part that exists
		info, err := os.Stat(at)
		if err == nil {
			if !info.IsDir() {
				return finding{f.Check, "bad", at + " is not a directory", "Set AVIARY_DATA_DIR."}
			}
			break
		}
		if parent := filepath.Dir(at); !errors.Is(err, os.ErrNotExist) || parent == at {
			return finding{f.Check, "bad", err.Error(), "Set AVIARY_DATA_DIR to a directory that this user can read."}
		}
		at = filepath.Dir(at)
	}
	file, err := os.CreateTemp(at, ".aviary-doctor-*")
	if err != nil {
		return finding{f.Check, "bad", fmt.Sprintf("%s cannot be written to: %v", dir, errors.Unwrap(err)), "Set AVIARY_DATA_DIR to a directory that this user can write to."}
	}
	if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
		return finding{f.Check, "bad", err.Error(), "Look at the disk."}
	}
	if at != dir {
		f.Detail += " (will be made)"
	}
	free, err := store.FreeBytes(at)
	switch {
	case err != nil || free < 0 || ctx.Err() != nil:
		return f
	case free < freeBytes:
		return finding{f.Check, "bad", fmt.Sprintf("%s: %d MB are free; uploads are refused below %d MB", dir, free>>20, freeBytes>>20), "Free some room."}
	}
	f.Detail += fmt.Sprintf(", %.1f GB free", float64(free)/1e9)
	return f
}

// checkModel reads the model's header and names the devices; it loads nothing.
func (a *app) checkModel(context.Context) finding {
	f := finding{Check: "model and device", Status: "ok"}
	devices, err := chooseDevices(a.settings.Device, a.program.Backends)
	if err != nil {
		return finding{f.Check, "bad", explain(err), "Set PARAKEET_DEVICE to one of those."}
	}
	model, err := openModel(a.settings.Model)
	if err != nil {
		return finding{f.Check, "bad", "PARAKEET_MODEL: " + err.Error(), "Set PARAKEET_MODEL to a directory with safetensors, or to a .nemo file."}
	}
	if err := model.Close(); err != nil {
		return finding{f.Check, "bad", err.Error(), "Look at the disk."}
	}
	var names []string
	for _, d := range devices {
		if err := newSickness(a.settings.DataDir, d.name).cordon(); err != nil {
			return finding{f.Check, "bad", err.Error(), "Look at the device, then delete that file."}
		}
		names = append(names, d.name)
	}
	f.Detail = fmt.Sprintf("%s on %s", modelName(a.settings.Model), strings.Join(names, ", "))
	if a.settings.Model == "" {
		f.Status, f.Mend = "note", "The bundled model knows English digits only: set PARAKEET_MODEL to a real one."
	}
	return f
}

func (a *app) checkFFmpeg(ctx context.Context) finding {
	const check = "ffmpeg"
	found, missing, err := findFFmpeg(ctx, a.settings.FFmpeg)
	switch {
	case err != nil:
		return finding{check, "bad", explain(err), "Set AVIARY_FFMPEG to an ffmpeg of version 4 or later, or to auto."}
	case found != nil:
		return finding{check, "ok", fmt.Sprintf("%s, version %s", found.Path, found.Version), ""}
	}
	var refused []string
	for _, f := range probe.New(probe.Config{}).Formats() {
		if !f.Available {
			refused = append(refused, f.Name)
		}
	}
	mend := "Install ffmpeg (on Debian: apt install ffmpeg)."
	if a.settings.FFmpeg == ffmpegOff {
		mend = "Set AVIARY_FFMPEG to auto."
	}
	return finding{check, "note", fmt.Sprintf("none (%v); refused are: %s", missing, strings.Join(refused, "; ")), mend}
}

func (a *app) checkRedis(ctx context.Context) finding {
	const check = "redis"
	if a.settings.RedisURL == "" {
		return finding{check, "ok", "embedded: one process does all", ""}
	}
	conn, err := queue.Dial(ctx, a.settings.RedisURL, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return finding{check, "bad", "AVIARY_REDIS_URL: " + err.Error(), "Start that Redis, or unset AVIARY_REDIS_URL for the embedded one."}
	}
	if err := errors.Join(conn.CheckRedis(ctx), conn.Close()); err != nil {
		return finding{check, "bad", "AVIARY_REDIS_URL: " + err.Error(), "Start that Redis, or unset AVIARY_REDIS_URL for the embedded one."}
	}
	return finding{check, "ok", "it answers and can be used", ""}
}

// checkAddresses tries to listen where serve would. A server that runs there already is worth a note.
func (a *app) checkAddresses(ctx context.Context) finding {
	const check = "addresses"
	for _, address := range []struct{ variable, value string }{
		{"AVIARY_LISTEN", a.settings.Listen}, {"AVIARY_METRICS_LISTEN", a.settings.MetricsListen},
	} {
		if address.value == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address.value)
		if err != nil {
			return finding{check, "note", fmt.Sprintf("%s: %v", address.variable, err), "If that is not an Aviary that runs already, choose another address."}
		}
		if err := l.Close(); err != nil {
			return finding{check, "bad", err.Error(), ""}
		}
	}
	return finding{check, "ok", a.settings.Listen + " and " + a.settings.MetricsListen + " are free", ""}
}
