package checkpoint_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/checkpoint/checkpointtest"
)

// TestShapesMustAgree removes, adds or reshapes one tensor of a hybrid model.
func TestShapesMustAgree(t *testing.T) {
	t.Parallel()
	const remove = -1
	for _, tt := range []struct {
		tensor string
		shape  []int
		want   string
	}{
		{"encoder.subsampling.layers.0.weight", []int{remove}, "tensor encoder.subsampling.layers.0.weight is missing"},
		{"encoder.subsampling.layers.0.weight", []int{3, 9}, "tensor encoder.subsampling.layers.0.weight has shape [3 9], expected 4 dimensions"},
		{"encoder.subsampling.layers.0.weight", []int{0, 1, 3, 3}, "no elements"},
		{"encoder.subsampling.linear.weight", []int{8, 31}, "has 31 columns, expected a multiple of the 3 channels"},
		{"encoder.subsampling.linear.weight", []int{8, 33}, "the front end has 80 mel bins, but tensor encoder.subsampling.linear.weight is for 81 to 88"},
		{"encoder.layers.0.self_attn.bias_u", []int{3, 4}, "self_attn.bias_u has shape [3 4], expected heads and width with the product 8"},
		{"encoder.layers.0.feed_forward1.linear1.weight", []int{remove}, "tensor encoder.layers.0.feed_forward1.linear1.weight is missing"},
		{"encoder.layers.2.norm_out.weight", []int{8}, "num_hidden_layers is 2, but the tensors say 3"},
		{"decoder.embedding.weight", []int{14, 5}, "tensor ctc_head.weight has 13 classes, expected 14"},
		{"decoder.embedding.weight", []int{remove}, "but the tensors are those of a ctc model"},
		{"decoder.lstm.weight_ih_l2", []int{20, 5}, "num_decoder_layers is 2, but the tensors say 3"},
		{"joint.head.weight", []int{12, 6}, "tensor joint.head.weight has 12 rows, expected at least the 13 tokens and blank"},
		{"joint.head.weight", []int{remove}, "tensor joint.head.weight is missing"},
		{"ctc_head.weight", []int{13, 8, 2}, "tensor ctc_head.weight has shape [13 8 2], expected [13 8 1]"},
		{"ctc_head.weight", []int{13, 8}, "expected 3 dimensions"},
	} {
		m := model(tiny(checkpoint.KindHybrid), checkpoint.F32)
		m.Tensors = slices.DeleteFunc(m.Tensors, func(i checkpoint.TensorInfo) bool { return i.Name == tt.tensor })
		if tt.shape[0] != remove {
			m.Tensors = append(m.Tensors, checkpoint.TensorInfo{Name: tt.tensor, DType: checkpoint.F32, Shape: tt.shape})
		}
		_, err := checkpoint.Open(writeHF(t, m))
		wantError(t, err, tt.want)
	}
}

func TestAModelWithoutHeadsIsRefused(t *testing.T) {
	t.Parallel()
	m := model(tiny(checkpoint.KindCTC), checkpoint.F32)
	m.Tensors = slices.DeleteFunc(m.Tensors, func(i checkpoint.TensorInfo) bool { return strings.HasPrefix(i.Name, "ctc_head") })
	_, err := checkpoint.Open(writeHF(t, m))
	wantError(t, err, "model.safetensors: neither tensor decoder.embedding.weight nor ctc_head.weight")
}

// TestUnknownTensorsStayVisible: a strict loader must be able to name them.
func TestUnknownTensorsStayVisible(t *testing.T) {
	t.Parallel()
	c := tiny(checkpoint.KindTDT)
	members := untar(t, nemoBytes(t, model(c, checkpoint.F32)))
	weights := func(extra string) []byte {
		var list []checkpoint.TensorInfo
		for _, info := range checkpointtest.Tensors(c, checkpoint.F32) {
			var ok bool
			if info.Name, ok = checkpoint.NemoName(info.Name); !ok {
				t.Fatal("no NeMo name")
			}
			list = append(list, info)
		}
		list = append(list, checkpoint.TensorInfo{Name: extra, DType: checkpoint.F32, Shape: []int{17}})
		var b bytes.Buffer
		if err := checkpointtest.WriteTorch(&b, list, fill); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	members["./model_weights.ckpt"] = weights("speaker.weight")
	got, err := checkpoint.OpenFS(fstest.MapFS{"x.nemo": {Data: retar(t, members)}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(got.Tensors.Names(), "speaker.weight") {
		t.Error("an unknown tensor is hidden")
	}
	// Two NeMo names for one canonical name.
	members["./model_weights.ckpt"] = weights("joint.joint_net.1.bias")
	_, err = checkpoint.OpenFS(fstest.MapFS{"x.nemo": {Data: retar(t, members)}})
	wantError(t, err, `tensor "joint.head.bias" comes twice`)
}
