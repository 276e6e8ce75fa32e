package checkpoint

import (
	"archive/zip"
	"bytes"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func readTorchFile(t testing.TB, name string) ([]tensor, error) {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return readTorchBytes(data)
}

func readTorchBytes(data []byte) ([]tensor, error) {
	return readTorch(section{name: "f", r: bytes.NewReader(data), size: int64(len(data))})
}

// TestTorchViews reads what PyTorch wrote (testdata/make.py): all types, and
// views of which an offset, a stride or a shared storage must be honored.
func TestTorchViews(t *testing.T) {
	t.Parallel()
	list, err := readTorchFile(t, "views.ckpt")
	if err != nil {
		t.Fatal(err)
	}
	set, err := newTensorSet(list)
	if err != nil {
		t.Fatal(err)
	}
	inf, negZero := float32(math.Inf(1)), float32(math.Copysign(0, -1))
	for _, want := range []struct {
		name   string
		dtype  DType
		shape  []int
		values []float32
	}{
		{"f32", F32, []int{2, 3}, []float32{1.5, -2.25, 3e-8, inf, 0, negZero}},
		{"f16", F16, []int{4}, []float32{1.5, -65504, 0x1p-24, 0.333251953125}},
		{"bf16", BF16, []int{4}, []float32{1.5, math.Float32frombits(0xff62 << 16), math.Float32frombits(1 << 16), 0.333984375}},
		{"empty", F32, []int{0, 3}, []float32{}},
		// base is [4,6] with i/4 at i; view = base transposed, rows 1-4, columns 1-3.
		{"view", F32, []int{4, 3}, []float32{1.75, 3.25, 4.75, 2, 3.5, 5, 2.25, 3.75, 5.25, 2.5, 4, 5.5}},
		{"row", F32, []int{6}, []float32{3, 3.25, 3.5, 3.75, 4, 4.25}},
		{"shared.a", F32, []int{2, 3}, []float32{-5, -4, -3, -2, -1, 0}},
		{"shared.b", F32, []int{4}, []float32{1, 2, 3, 4}},
	} {
		info, ok := set.Info(want.name)
		if !ok || info.DType != want.dtype || !slices.Equal(info.Shape, want.shape) {
			t.Errorf("%s: %+v %v, want %s %v", want.name, info, ok, want.dtype, want.shape)
			continue
		}
		got, rounded := make([]float32, len(want.values)), make([]uint16, len(want.values))
		if err := set.Float32(want.name, got); err != nil {
			t.Error(err)
		}
		if err := set.BFloat16(want.name, rounded); err != nil {
			t.Error(err)
		}
		for i, v := range want.values {
			if math.Float32bits(got[i]) != math.Float32bits(v) || rounded[i] != RoundBFloat16(v) {
				t.Errorf("%s[%d] = %v, %#x, want %v", want.name, i, got[i], rounded[i], v)
			}
		}
	}
	for _, name := range []string{"i64", "scalar"} {
		err := set.Float32(name, []float32{0})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("tensor %q is I64, expected a floating type", name)) {
			t.Errorf("got %v", err)
		}
	}
	if info, _ := set.Info("scalar"); len(info.Shape) != 0 || info.Elements() != 1 {
		t.Errorf("scalar: %+v", info)
	}
}

// TestGatherCrossesBlocks reads a transposed view longer than a block.
func TestGatherCrossesBlocks(t *testing.T) {
	t.Parallel()
	const rows, columns = 300, 500
	raw := make([]byte, 2*rows*columns)
	for i := range rows * columns {
		raw[2*i+1] = byte(i % 61) // bfloat16 with only the high byte set
	}
	want := make([]uint16, 0, rows*columns)
	for c := range columns {
		for r := range rows {
			want = append(want, uint16((r*columns+c)%61)<<8)
		}
	}
	set, err := newTensorSet([]tensor{{
		TensorInfo: TensorInfo{Name: "t", DType: BF16, Shape: []int{columns, rows}},
		data:       section{r: bytes.NewReader(raw), size: int64(len(raw))},
		strides:    []int{1, columns},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]uint16, rows*columns)
	if err := set.BFloat16("t", got); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("a transposed view came out wrong")
	}
}

// TestNemoFromPyTorch opens the archive that testdata/make.py packed: it has
// references in the YAML, flattened LSTM weights, an old vocabulary that is not
// referred to, and the front end's tables.
func TestNemoFromPyTorch(t *testing.T) {
	t.Parallel()
	c, err := Open("testdata/tiny.nemo")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	wantConfig := Config{
		Kind:       KindHybrid,
		SampleRate: 16000, Mels: 16, NFFT: 512, Window: 400, Hop: 160, Preemphasis: 0.97,
		DModel: 4, FFDim: 8, Layers: 1, Heads: 2, ConvKernel: 3, SubsamplingFactor: 8, SubsamplingChannels: 2,
		AttentionLeft: -1, AttentionRight: -1, VocabSize: 6, BlankID: 6,
		Durations: []int{0, 1, 2, 3, 4}, MaxSymbols: 10, PredHidden: 3, PredLayers: 1, JointHidden: 3,
	}
	if !reflect.DeepEqual(c.Config, wantConfig) {
		t.Errorf("config\n got %+v\nwant %+v", c.Config, wantConfig)
	}
	wantPieces := []Piece{{"<unk>", Unknown}, {"<pad>", Control}, {"\u2581one", Normal}, {"<0x41>", Byte}, {"<|x|>", UserDefined}, {".", Normal}}
	if !slices.Equal(c.Pieces, wantPieces) {
		t.Errorf("pieces %v, want %v", c.Pieces, wantPieces)
	}
	wantIgnored := []string{"encoder.layers.0.conv.batch_norm.num_batches_tracked", "preprocessor.featurizer.fb", "preprocessor.featurizer.window"}
	if !slices.Equal(c.Ignored, wantIgnored) {
		t.Errorf("ignored %v, want %v", c.Ignored, wantIgnored)
	}
	// 12 in the subsampling, 28 in the layer, 1 embedding, 4 LSTM, 6 joint, 2 CTC.
	names := c.Tensors.Names()
	if len(names) != 53 {
		t.Errorf("%d tensors, want 53: %v", len(names), names)
	}
	for _, name := range names {
		if _, ok := NemoName(name); !ok {
			t.Errorf("tensor %s is not under a canonical name", name)
		}
		info, _ := c.Tensors.Info(name)
		v := make([]float32, info.Elements())
		if err := c.Tensors.Float32(name, v); err != nil {
			t.Fatal(err)
		}
		for i := range v {
			if v[i] != float32(i)/8-3 {
				t.Errorf("%s[%d] = %v, want %v", name, i, v[i], float32(i)/8-3)
				break
			}
		}
	}
}

func TestEvilPickleIsRefused(t *testing.T) {
	t.Parallel()
	_, err := readTorchFile(t, "evil.ckpt")
	if err == nil || !strings.Contains(err.Error(), `refused global "posix.system"`) {
		t.Errorf("got %v", err)
	}
}

// zipOf makes an archive of entries, stored or compressed.
func zipOf(t testing.TB, method uint16, entries ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := 0; i < len(entries); i += 2 {
		w, err := z.CreateHeader(&zip.FileHeader{Name: entries[i], Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(entries[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// onePickle is a state dict {"w": float storage "0" of 4 elements, as a 2x2}.
const onePickle = "\x80\x02ccollections\nOrderedDict\n)RX\x01\x00\x00\x00w" +
	"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ" +
	"K\x00K\x02K\x02\x86K\x02K\x01\x86\x89ccollections\nOrderedDict\n)RtRs."

func TestTorchArchive(t *testing.T) {
	t.Parallel()
	const data = "0123456789abcdef"
	for name, tt := range map[string]struct {
		data []byte
		want string
	}{
		"good":              {zipOf(t, zip.Store, "r/data.pkl", onePickle, "r/data/0", data, "r/byteorder", "little"), ""},
		"no folder":         {zipOf(t, zip.Store, "data.pkl", onePickle, "data/0", data), ""},
		"no pickle":         {zipOf(t, zip.Store, "r/data/0", data), "data.pkl: not in the archive"},
		"two pickles":       {zipOf(t, zip.Store, "a/data.pkl", onePickle, "b/data.pkl", onePickle), "expected one data.pkl"},
		"entry twice":       {zipOf(t, zip.Store, "r/data.pkl", onePickle, "r/data/0", data, "r/data/0", data), `entry "r/data/0" comes twice`},
		"no storage":        {zipOf(t, zip.Store, "r/data.pkl", onePickle), `tensor "w": storage "0": not in the archive`},
		"short storage":     {zipOf(t, zip.Store, "r/data.pkl", onePickle, "r/data/0", data[1:]), `storage "0": 15 bytes, expected 16 for 4 elements of F32`},
		"compressed":        {zipOf(t, zip.Deflate, "r/data.pkl", onePickle, "r/data/0", data), `storage "0": is compressed`},
		"big endian":        {zipOf(t, zip.Store, "r/data.pkl", onePickle, "r/data/0", data, "r/byteorder", "big"), `byte order "big", expected little`},
		"large pickle":      {zipOf(t, zip.Store, "r/data.pkl", strings.Repeat("x", maxPickleBytes+1)), "expected at most 16777216"},
		"not an archive":    {[]byte("hello"), "not a zip"},
		"truncated archive": {zipOf(t, zip.Store, "r/data.pkl", onePickle, "r/data/0", data)[:100], "not a zip"},
	} {
		_, err := readTorchBytes(tt.data)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: got error %v\nwant %s", name, err, tt.want)
		}
	}
}

func FuzzNemo(f *testing.F) {
	for _, name := range []string{"testdata/tiny.nemo", "testdata/views.ckpt"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if list, err := readTorchBytes(data); err == nil {
			readAll(t, list, int64(len(data)))
		}
		c, err := openDirectory(&directory{fsys: fstest.MapFS{"x.nemo": {Data: data}}}, "x.nemo")
		if err == nil {
			_ = c.Close()
		}
	})
}

func FuzzNemoConfig(f *testing.F) {
	f.Add([]byte("encoder: {n_layers: 2, att_context_size: [-1, -1], xscaling: null}\ndecoding: {durations: &d [0, 1]}\nmodel_defaults: {tdt_durations: *d}\n"))
	f.Add([]byte("a: &a [x]\nb: &b [*a, *a]\nencoder:\n  att_context_size: *b\n  <<: {n_heads: ${x}}\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		c, err := parseNemoConfig(data)
		if err == nil {
			s := shapes{Config: Config{Kind: KindTDT, DModel: 4, FFDim: 16}}
			_ = c.apply(&s)
		}
	})
}
