package checkpoint

import (
	"os"
	"strings"
	"testing"
)

// The pieces of onePickle, to be recombined.
const (
	pklHead    = "\x80\x02ccollections\nOrderedDict\n)R"
	pklName    = "X\x01\x00\x00\x00w"
	pklTensor  = "ctorch._utils\n_rebuild_tensor_v2\n("
	pklStorage = "(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ"
	pklTail    = "\x89ccollections\nOrderedDict\n)RtRs."
)

func TestPickleAccepts(t *testing.T) {
	t.Parallel()
	for name, view := range map[string]string{
		"whole":               "K\x00K\x02K\x02\x86K\x02K\x01\x86",
		"offset":              "K\x02K\x02\x85K\x01\x85",
		"transposed":          "K\x00K\x02K\x02\x86K\x01K\x02\x86",
		"scalar":              "K\x03))",
		"empty":               "K\x04K\x00\x85K\x01\x85",
		"long integer":        "\x8a\x01\x00K\x04\x85\x8a\x01\x01\x85",
		"zero length integer": "\x8a\x00K\x04\x85K\x01\x85",
		"wide integers":       "J\x00\x00\x00\x00M\x04\x00\x85J\x01\x00\x00\x00\x85",
	} {
		items, err := readStateDict([]byte(pklHead + pklName + pklTensor + pklStorage + view + pklTail))
		if err != nil || len(items) != 1 || items[0].name != "w" {
			t.Errorf("%s: %v, %v", name, items, err)
		}
	}
	// Metadata set by BUILD, lists, and memo entries in both widths.
	extra := "}X\x09\x00\x00\x00_metadata]q\x05r\x00\x01\x00\x00(h\x05j\x00\x01\x00\x00K\x02esb."
	if items, err := readStateDict([]byte(pklHead + extra)); err != nil || len(items) != 0 {
		t.Errorf("metadata: %v, %v", items, err)
	}
}

func TestPickleRefuses(t *testing.T) {
	t.Parallel()
	tensorOf := func(view string) string { return pklHead + pklName + pklTensor + pklStorage + view + pklTail }
	storageOf := func(id string) string { return id + "Q." }
	for name, tt := range map[string]struct{ data, want string }{
		"os.system":              {"\x80\x02cposix\nsystem\n(X\x02\x00\x00\x00lstR.", `refused global "posix.system"`},
		"a near miss":            {"\x80\x02ctorch._utils\n_rebuild_parameter\n.", `refused global "torch._utils._rebuild_parameter"`},
		"builtins":               {"\x80\x02cbuiltins\neval\n.", `refused global "builtins.eval"`},
		"unneeded storage":       {"\x80\x02ctorch\nDoubleStorage\n.", `refused global "torch.DoubleStorage"`},
		"a newline in a name":    {"\x80\x02ctorch\n", "truncated"},
		"INST":                   {"\x80\x02iposix\nsystem\n.", `opcode 0x69 ('i')`},
		"STACK_GLOBAL":           {"\x80\x02X\x05\x00\x00\x00posixX\x06\x00\x00\x00system\x93.", `opcode 0x93`},
		"EXT1":                   {"\x80\x02\x82\x01.", `opcode 0x82`},
		"protocol 4":             {"\x80\x04.", "protocol 4, expected at most 2"},
		"empty":                  {"", "truncated"},
		"stop on nothing":        {"\x80\x02.", "stack is empty"},
		"not a dict":             {"\x80\x02K\x01.", "pickle holds the number 1, expected a dict"},
		"a class as the result":  {"\x80\x02ccollections\nOrderedDict\n.", "pickle holds collections.OrderedDict"},
		"key not a string":       {"\x80\x02}K\x01K\x02s.", "key that is the number 1"},
		"value not a tensor":     {"\x80\x02}X\x01\x00\x00\x00wNs.", `"w" is None, expected a tensor`},
		"call of a number":       {"\x80\x02K\x01)R.", "refused call of the number 1"},
		"call of a class":        {"\x80\x02ctorch\nFloatStorage\n)R.", "refused call of torch.FloatStorage"},
		"call without a tuple":   {"\x80\x02ccollections\nOrderedDict\nK\x01R.", "expected a tuple"},
		"dict of pairs":          {"\x80\x02ccollections\nOrderedDict\n]\x85R.", "with 1 arguments, expected none"},
		"memo without entry":     {"\x80\x02h\x07.", "memo has no entry 7"},
		"no mark":                {"\x80\x02K\x01t.", "no mark"},
		"items without a dict":   {"\x80\x02(K\x01K\x02u.", "stack is empty"},
		"odd items":              {"\x80\x02}(K\x01u.", "with 1 values on a dict"},
		"append to a dict":       {"\x80\x02}K\x01a.", "with 1 values on a dict"},
		"items of a list":        {"\x80\x02]K\x01K\x02s.", "on a list"},
		"build on a number":      {"\x80\x02K\x01K\x02b.", "on the number 1"},
		"string beyond the end":  {"\x80\x02X\xff\xff\xff\xff.", "truncated"},
		"not UTF-8":              {"\x80\x02X\x01\x00\x00\x00\xff.", "not UTF-8"},
		"integer of 9 bytes":     {"\x80\x02\x8a\x09123456789.", "integer of 9 bytes"},
		"storage not a tuple":    {storageOf("\x80\x02K\x01"), "not that of a storage"},
		"storage of a module":    {storageOf("\x80\x02(X\x06\x00\x00\x00moduleNNNNt"), "not that of a storage"},
		"storage class a string": {storageOf("\x80\x02(X\x07\x00\x00\x00storageX\x01\x00\x00\x00xNNNt"), "storage class is a string"},
		"storage key a number":   {storageOf("\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nK\x01NNt"), "storage key is the number 1"},
		"negative storage":       {storageOf("\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000NJ\xff\xff\xff\xfft"), "has the number -1 elements"},
		"offset beyond":          {tensorOf("K\x05K\x00\x85K\x01\x85"), "offset is the number 5 in a storage of 4"},
		"negative offset":        {tensorOf("J\xff\xff\xff\xffK\x01\x85K\x01\x85"), "offset is the number -1"},
		"view beyond":            {tensorOf("K\x01K\x02K\x02\x86K\x02K\x01\x86"), "leaves a storage of 4 elements"},
		"stride beyond":          {tensorOf("K\x00K\x02\x85K\x04\x85"), "leaves a storage of 4 elements"},
		"stride 0":               {tensorOf("K\x00M\xff\xffM\xff\xff\x86K\x00K\x00\x86"), "leaves a storage of 4 elements"},
		"negative stride":        {tensorOf("K\x03K\x04\x85J\xff\xff\xff\xff\x85"), "stride -1"},
		"huge stride":            {tensorOf("K\x00K\x02\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"), "stride 9223372036854775807"},
		"huge size":              {tensorOf("K\x00\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x03\x86K\x00K\x00\x86"), "more than 2^40"},
		"negative size":          {tensorOf("K\x00J\xff\xff\xff\xff\x85K\x01\x85"), "negative dimension"},
		"size and stride differ": {tensorOf("K\x00K\x02\x85)"), "differ in length"},
		"size of strings":        {tensorOf("K\x00X\x01\x00\x00\x00x\x85K\x01\x85"), "size: a string, expected a number"},
		"too many dimensions":    {tensorOf("K\x00(" + strings.Repeat("K\x01", 9) + "t)"), "9 dimensions"},
		"few arguments":          {pklHead + pklName + pklTensor + pklStorage + "tR.", "1 arguments, expected 6 or 7"},
		"a tensor of nothing":    {pklHead + pklName + "ctorch._utils\n_rebuild_tensor_v2\n(NNNNNNtR.", "argument 1 is None, expected a storage"},
		"a full stack":           {"\x80\x02" + strings.Repeat("N", maxPickleStack+1), "more than 65536 values on the stack"},
		"too long":               {strings.Repeat("N", maxPickleBytes+1), "expected at most 16777216"},
	} {
		_, err := readStateDict([]byte(tt.data))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v\nwant %s", name, err, tt.want)
		}
	}
}

func FuzzPickle(f *testing.F) {
	f.Add([]byte(onePickle))
	f.Add([]byte(pklHead + "}X\x09\x00\x00\x00_metadata]q\x05(K\x01K\x02eh\x05as\x62."))
	if data, err := os.ReadFile("testdata/views.ckpt"); err == nil {
		f.Add(data[64:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		items, err := readStateDict(data)
		if err != nil {
			return
		}
		for _, it := range items {
			v := it.tensor
			if v.elems > v.storage.elems || v.offset > v.storage.elems || len(v.shape) != len(v.strides) {
				t.Fatalf("%s: a view of %d elements in a storage of %d", it.name, v.elems, v.storage.elems)
			}
			if v.elems > 0 {
				if last := v.offset + int64(lastElement(ints(v.shape), ints(v.strides))); last < 0 || last >= v.storage.elems {
					t.Fatalf("%s: element %d in a storage of %d", it.name, last, v.storage.elems)
				}
			}
		}
	})
}
