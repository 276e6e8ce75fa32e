package checkpoint_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/checkpoint/checkpointtest"
)

// tiny is a model small enough to write in every test.
func tiny(kind checkpoint.Kind) checkpoint.Config {
	c := checkpoint.Config{
		Kind:       kind,
		SampleRate: 16000, Mels: 80, NFFT: 512, Window: 400, Hop: 160, Preemphasis: 0.97,
		DModel: 8, FFDim: 32, Layers: 2, Heads: 2, ConvKernel: 9,
		SubsamplingFactor: 8, SubsamplingChannels: 3,
		AttentionLeft: -1, AttentionRight: -1,
		VocabSize: 12, BlankID: 12,
	}
	if kind.HasTransducer() {
		c.PredHidden, c.PredLayers, c.JointHidden, c.MaxSymbols = 5, 2, 6, 10
	}
	if kind == checkpoint.KindTDT || kind == checkpoint.KindHybrid {
		c.Durations = []int{0, 1, 2, 4}
	}
	return c
}

// values gives what element i of a tensor holds: exact in every type.
func values(name string) func(i int) float32 {
	h := fnv.New32a()
	h.Write([]byte(name))
	first := int(h.Sum32()%64) - 32
	return func(i int) float32 { return float32(first+i%61) / 8 }
}

func fill(t checkpoint.TensorInfo, offset int, dst []float32) {
	value := values(t.Name)
	for i := range dst {
		dst[i] = value(offset + i)
	}
}

func model(c checkpoint.Config, dtype checkpoint.DType) checkpointtest.Model {
	return checkpointtest.Model{
		Config: c, Pieces: checkpointtest.Pieces(c.VocabSize),
		Tensors: checkpointtest.Tensors(c, dtype), Fill: fill,
	}
}

func writeHF(t *testing.T, m checkpointtest.Model) string {
	t.Helper()
	dir := t.TempDir()
	if err := checkpointtest.WriteHuggingFace(dir, m); err != nil {
		t.Fatal(err)
	}
	return dir
}

func nemoBytes(t testing.TB, m checkpointtest.Model) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := checkpointtest.WriteNemo(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func writeNemo(t *testing.T, m checkpointtest.Model) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.nemo")
	if err := os.WriteFile(path, nemoBytes(t, m), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *checkpoint.Checkpoint {
	t.Helper()
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestBothFormatsGiveTheSameModel writes models of every kind in both layouts
// and reads them back: configuration, pieces and every element.
func TestBothFormatsGiveTheSameModel(t *testing.T) {
	t.Parallel()
	variants := map[string]func(*checkpoint.Config){
		"plain":         func(*checkpoint.Config) {},
		"biases, scale": func(c *checkpoint.Config) { c.AttentionBias, c.ConvBias, c.ScaleInput = true, true, true },
		"local":         func(c *checkpoint.Config) { c.AttentionLeft, c.AttentionRight = 128, 64 },
		"128 mels":      func(c *checkpoint.Config) { c.Mels = 128 },
	}
	for _, kind := range []checkpoint.Kind{checkpoint.KindTDT, checkpoint.KindRNNT, checkpoint.KindCTC, checkpoint.KindHybrid} {
		for name, change := range variants {
			t.Run(string(kind)+", "+name, func(t *testing.T) {
				t.Parallel()
				c := tiny(kind)
				change(&c)
				m := model(c, checkpoint.F32)
				checkModel(t, open(t, writeHF(t, m)), m, checkpoint.HuggingFace)
				checkModel(t, open(t, writeNemo(t, m)), m, checkpoint.NeMo)
			})
		}
	}
}

func checkModel(t *testing.T, got *checkpoint.Checkpoint, m checkpointtest.Model, format checkpoint.Format) {
	t.Helper()
	if !reflect.DeepEqual(got.Config, m.Config) {
		t.Errorf("config\n got %+v\nwant %+v", got.Config, m.Config)
	}
	if !slices.Equal(got.Pieces, m.Pieces) {
		t.Errorf("pieces %v, want %v", got.Pieces, m.Pieces)
	}
	if got.Format != format {
		t.Errorf("format %s, want %s", got.Format, format)
	}
	var names []string
	for _, want := range m.Tensors {
		if want.DType == checkpoint.I64 {
			continue
		}
		names = append(names, want.Name)
		checkTensor(t, got.Tensors, want)
	}
	slices.Sort(names)
	if !slices.Equal(got.Tensors.Names(), names) {
		t.Errorf("names %v, want %v", got.Tensors.Names(), names)
	}
	if len(got.Ignored) != m.Config.Layers {
		t.Errorf("ignored %v, want %d batch counters", got.Ignored, m.Config.Layers)
	}
}

func checkTensor(t *testing.T, ts checkpoint.Tensors, want checkpoint.TensorInfo) {
	t.Helper()
	info, ok := ts.Info(want.Name)
	if !ok || !reflect.DeepEqual(info, want) {
		t.Errorf("info %+v %v, want %+v", info, ok, want)
		return
	}
	f := make([]float32, info.Elements())
	b := make([]uint16, info.Elements())
	if err := errors.Join(ts.Float32(want.Name, f), ts.BFloat16(want.Name, b)); err != nil {
		t.Error(err)
	}
	value := values(want.Name)
	for i := range f {
		if v := value(i); f[i] != v || b[i] != checkpoint.RoundBFloat16(v) {
			t.Errorf("%s[%d] = %v, %#x, want %v", want.Name, i, f[i], b[i], v)
			return
		}
	}
}

// TestLargeTensorsAreReadInBlocks reads one of 2.3 blocks of 256 KiB.
func TestLargeTensorsAreReadInBlocks(t *testing.T) {
	t.Parallel()
	for _, dtype := range []checkpoint.DType{checkpoint.F32, checkpoint.BF16} {
		m := model(tiny(checkpoint.KindCTC), checkpoint.F32)
		long := checkpoint.TensorInfo{Name: "long", DType: dtype, Shape: []int{611, 247 * 4 / dtype.Bytes()}}
		m.Tensors = append(m.Tensors, long)
		c := open(t, writeHF(t, m))
		checkTensor(t, c.Tensors, long)
	}
}

func TestShardsAreReadThroughTheIndex(t *testing.T) {
	t.Parallel()
	m := model(tiny(checkpoint.KindTDT), checkpoint.F32)
	dir := writeHF(t, m)
	shard := func(index map[string]string) {
		if err := os.Remove(filepath.Join(dir, "model.safetensors")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		for i, part := range [][]checkpoint.TensorInfo{m.Tensors[:30], m.Tensors[30:]} {
			name := []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}[i]
			var b bytes.Buffer
			if err := checkpointtest.WriteSafetensors(&b, part, fill); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, name), b.Bytes())
			for _, info := range part {
				if _, ok := index[info.Name]; !ok {
					index[info.Name] = name
				}
			}
		}
		text, err := json.Marshal(map[string]any{"weight_map": index})
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "model.safetensors.index.json"), text)
	}
	shard(map[string]string{})
	checkModel(t, open(t, dir), m, checkpoint.HuggingFace)

	for want, index := range map[string]map[string]string{
		`tensor "encoder.subsampling.layers.0.weight" is in model-00001-of-00002.safetensors, the index says "model-00002-of-00002.safetensors"`: {"encoder.subsampling.layers.0.weight": "model-00002-of-00002.safetensors"},
		`tensor "ghost" is not in model-00001-of-00002.safetensors`:                                                                              {"ghost": "model-00001-of-00002.safetensors"},
		`open ../outside: invalid argument`: {"ghost": "../outside"},
	} {
		shard(index)
		_, err := checkpoint.Open(dir)
		wantError(t, err, want)
	}
}

func TestCompressedNemoIsUnpackedAndRemoved(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	m := model(tiny(checkpoint.KindHybrid), checkpoint.F32)
	plain := nemoBytes(t, m)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.nemo")
	write(t, path, packed.Bytes())
	c, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	checkModel(t, c, m, checkpoint.NeMo)
	wantFiles := func(n int) {
		t.Helper()
		if entries, err := os.ReadDir(temp); err != nil || len(entries) != n {
			t.Errorf("temporary files %v, %v, want %d", entries, err, n)
		}
	}
	wantFiles(1)
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	wantFiles(0)

	write(t, path, packed.Bytes()[:packed.Len()/2])
	if _, err = checkpoint.Open(path); err == nil {
		t.Error("half of a gzip was accepted")
	}
	wantFiles(0)
}

func TestOpenFindsTheLayout(t *testing.T) {
	t.Parallel()
	m := model(tiny(checkpoint.KindTDT), checkpoint.BF16)
	dir := writeHF(t, m)
	nemo := nemoBytes(t, model(tiny(checkpoint.KindCTC), checkpoint.F32))
	write(t, filepath.Join(dir, "model.nemo"), nemo)
	if c := open(t, dir); c.Format != checkpoint.HuggingFace {
		t.Errorf("a directory with both gave %s", c.Format)
	}
	if c := open(t, filepath.Join(dir, "model.nemo")); c.Config.Kind != checkpoint.KindCTC {
		t.Errorf("the .nemo file gave %s", c.Config.Kind)
	}
	for _, fsys := range []fstest.MapFS{
		{"model.nemo": {Data: nemo}},
		{"model.nemo": {Data: nemo}, "config.json": {Data: []byte("{}")}},
	} {
		c, err := checkpoint.OpenFS(fsys)
		if err != nil {
			t.Fatal(err)
		}
		if c.Config.Kind != checkpoint.KindCTC || c.Close() != nil {
			t.Errorf("got %+v", c.Config)
		}
	}
	_, err := checkpoint.OpenFS(fstest.MapFS{"a.nemo": {Data: nemo}, "b.nemo": {Data: nemo}})
	wantError(t, err, "there are 2 .nemo files")
	_, err = checkpoint.OpenFS(fstest.MapFS{"config.json": {Data: []byte("{}")}})
	wantError(t, err, "expected config.json with model.safetensors, or one .nemo file; there are 0 .nemo files")
	_, err = checkpoint.Open(filepath.Join(dir, "absent"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestSHA256IsThatOfTheFile(t *testing.T) {
	t.Parallel()
	m := model(tiny(checkpoint.KindTDT), checkpoint.F32)
	dir := writeHF(t, m)
	nemo := writeNemo(t, m)
	for path, file := range map[string]string{dir: filepath.Join(dir, "model.safetensors"), nemo: nemo} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		c := open(t, path)
		got, err := c.SHA256(t.Context())
		if want := hex.EncodeToString(sum[:]); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", file, got, err, want)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.SHA256(canceled); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
	}
}

func TestReadingFailsByName(t *testing.T) {
	t.Parallel()
	c := open(t, writeHF(t, model(tiny(checkpoint.KindTDT), checkpoint.F32)))
	wantError(t, c.Tensors.Float32("ghost", nil), `no tensor "ghost"`)
	wantError(t, c.Tensors.BFloat16("joint.head.bias", make([]uint16, 3)),
		`model.safetensors: tensor "joint.head.bias" has 17 elements (shape [17]), the destination 3`)
}

// TestPublishedSizes holds the shape list, and so the names that the readers
// are tested with, against the published totals of the checkpoints.
func TestPublishedSizes(t *testing.T) {
	t.Parallel()
	v3 := checkpointtest.ParakeetTDT06BV3()
	v2 := v3
	v2.VocabSize = 1024
	ctc := v2
	ctc.Kind, ctc.Mels, ctc.AttentionBias, ctc.ConvBias = checkpoint.KindCTC, 80, true, true
	ctc11 := ctc
	ctc11.Layers = 42
	for name, tt := range map[string]struct {
		config            checkpoint.Config
		tensors, elements int
	}{
		"parakeet-tdt-0.6b-v3": {v3, 723, 627_057_310},
		"parakeet-tdt-0.6b-v2": {v2, 723, 617_875_102},
		"parakeet-ctc-0.6b":    {ctc, 974, 608_848_921},
		"parakeet-ctc-1.1b":    {ctc11, 1694, 1_062_626_347},
	} {
		list := checkpointtest.Tensors(tt.config, checkpoint.F32)
		elements := 0
		for _, info := range list {
			elements += info.Elements()
		}
		if len(list) != tt.tensors || elements != tt.elements {
			t.Errorf("%s: %d tensors, %d elements, want %d and %d", name, len(list), elements, tt.tensors, tt.elements)
		}
	}
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got error %v\nwant %s", err, text)
	}
}
