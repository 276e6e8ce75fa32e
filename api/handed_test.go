package api_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/probe"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
	"github.com/aviary-asr/aviary/probe/probetest"
	"github.com/aviary-asr/aviary/store"
)

// handedFiles is where the files are that package probe is held to, and what may be answered to each.
const handedFiles = "../probe/testdata"

// Every handed file is submitted over HTTP, to a real store and the real prober. A refusal leaves no row, no blob and no staged file; an
// accepted one is stored as it came and as what a device hears, which is as long as was answered.
func TestHandedFilesOverHTTP(t *testing.T) {
	t.Parallel()
	found, err := ffmpeg.Find(t.Context(), "ffmpeg")
	if err != nil && os.Getenv("AVIARY_TEST_REQUIRE_FFMPEG") != "" {
		t.Fatal(err)
	}
	h := &handedRig{T: t, dir: t.TempDir(), prober: probe.New(probe.Config{MaxDuration: time.Hour, FFmpeg: found}), ffmpeg: found != nil}
	if h.store, err = store.Open(t.Context(), "sqlite:"+h.dir+"/aviary.db", store.Options{}); err != nil {
		t.Fatal(err)
	}
	defer h.store.Close()
	if h.blobs, err = store.OpenBlobs(t.Context(), "file:"+h.dir+"/blobs"); err != nil {
		t.Fatal(err)
	}
	r := start(t, func(r *rig) {
		r.intake.Store, r.intake.Blobs, r.intake.Prober, r.config.Store = h.store, h.blobs, h.prober, h.store
	})
	defer r.stop()
	h.client = r.newClient()
	for _, c := range probetest.Cases(t, handedFiles) {
		if hour := c.Truth > 600 && len(c.Accept) > 0; !hour { // package probe normalizes whole hours
			h.submit(c)
		}
	}
}

// handedRig is the system under TestHandedFilesOverHTTP.
type handedRig struct {
	*testing.T
	dir    string
	store  aviary.Store
	blobs  aviary.Blobs
	prober *probe.Prober
	ffmpeg bool
	client *api.Client
	jobs   int
	files  int
}

func (h *handedRig) submit(c probetest.Case) {
	h.Helper()
	file, err := os.ReadFile(filepath.Join(handedFiles, c.Name))
	if err != nil {
		h.Fatal(err)
	}
	job, err := h.client.Submit(h.Context(), api.Upload{Body: bytes.NewReader(file), Size: int64(len(file)), Options: aviary.Options{Name: c.Name}})
	var said *aviary.Error
	if unavailable := !h.ffmpeg && errors.As(err, &said) && strings.Contains(said.Detail, "this server has none"); !unavailable {
		if wrong := c.Judge(aviary.CodeOf(err), time.Duration(job.Audio.DurationSeconds*float64(time.Second))); wrong != nil {
			h.Errorf("%v (%v)", wrong, err)
		}
	}
	if err == nil {
		h.jobs, h.files = h.jobs+1, h.files+2
		h.accepted(c.Name, job, file)
	}
	list, err := h.store.Jobs(h.Context(), aviary.JobQuery{Limit: 200})
	if err != nil || len(list.Jobs) != h.jobs {
		h.Errorf("%s: %d rows, want %d (%v)", c.Name, len(list.Jobs), h.jobs, err)
	}
	left := 0
	err = filepath.WalkDir(filepath.Join(h.dir, "blobs"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left++
		}
		return err
	})
	if err != nil || left != h.files {
		h.Errorf("%s: %d files are stored, want %d (%v)", c.Name, left, h.files, err)
		h.files = left // once is enough
	}
}

// accepted checks what is stored for a job.
func (h *handedRig) accepted(name string, job api.Job, file []byte) {
	h.Helper()
	if stored := h.read(job.ID); !bytes.Equal(stored, file) {
		h.Errorf("%s: the upload is stored changed", name)
	}
	recording := h.read(job.ID + ".flac")
	pcm, err := h.prober.Decode(h.Context(), bytes.NewReader(recording), int64(len(recording)), time.Hour+time.Second)
	if err != nil || math.Abs(pcm.Duration().Seconds()-job.Audio.DurationSeconds) > 0.0011 { // the answer has three decimals
		h.Errorf("%s: what the device hears is %v long (%v), the answer said %v s", name, pcm.Duration(), err, job.Audio.DurationSeconds)
	}
}

func (h *handedRig) read(key string) []byte {
	h.Helper()
	blob, err := h.blobs.Open(h.Context(), key)
	if err != nil {
		h.Fatal(err)
	}
	defer blob.Close()
	b := make([]byte, blob.Size())
	if _, err := blob.ReadAt(b, 0); err != nil {
		h.Fatal(err)
	}
	return b
}
