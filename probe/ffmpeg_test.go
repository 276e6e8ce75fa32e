package probe

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// installedFFmpeg is the one of this machine, if there is one: it is looked for once.
var installedFFmpeg = sync.OnceValues(func() (*ffmpeg.Command, error) {
	name := os.Getenv("AVIARY_FFMPEG")
	if name == "" {
		name = "ffmpeg"
	}
	return ffmpeg.Find(context.Background(), name)
})

// needFFmpeg is the installed ffmpeg. Without one it skips the test, or fails it where AVIARY_TEST_REQUIRE_FFMPEG is 1.
func needFFmpeg(t testing.TB) *ffmpeg.Command {
	t.Helper()
	command, err := installedFFmpeg()
	switch {
	case err == nil:
		return command
	case os.Getenv("AVIARY_TEST_REQUIRE_FFMPEG") == "1":
		t.Fatalf("this test needs ffmpeg: %v", err)
	}
	t.Skipf("this test needs ffmpeg: %v", err)
	return nil
}
