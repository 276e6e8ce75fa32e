package matroska

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestDamage(t *testing.T) {
	t.Parallel()
	tracks := el(idTracks, entry(1, 2))
	encoding := func(parts ...[]byte) []byte {
		return live(el(idTracks, entry(1, 2, el(idContentEncodings, el(idContentEncoding, parts...)))), cluster(0))
	}
	good := cluster(0, simple(0, 'a'))
	for name, c := range map[string]struct {
		file []byte
		kind error
		want string
	}{
		"nothing":                       {nil, ErrDamaged, "cut off"},
		"zeros":                         {make([]byte, 100), ErrDamaged, "begins no element"},
		"no EBML header":                {good, ErrDamaged, "does not start with"},
		"another EBML":                  {el(idEBML, el(idDocType, []byte("mka"))), ErrUnsupported, `"mka"`},
		"without a type":                {el(idEBML), ErrUnsupported, `""`},
		"type of bytes":                 {el(idEBML, el(idDocType, []byte("we\x01m"))), ErrDamaged, "no text"},
		"EBML header of unknown size":   {open(idEBML, unknown), ErrDamaged, "no size"},
		"EBML header only":              {webmHead, ErrDamaged, "cut off"},
		"long IDs":                      {el(idEBML, el(idDocType, []byte("webm")), num(idEBMLMaxIDLength, 5)), ErrUnsupported, "IDs of 5"},
		"long sizes":                    {el(idEBML, el(idDocType, []byte("webm")), num(idEBMLMaxSizeLength, 9)), ErrUnsupported, "sizes of 9"},
		"no segment":                    {slices.Concat(webmHead, el(0xEC)), ErrDamaged, "cut off"},
		"unknown before the segment":    {slices.Concat(webmHead, open(0xEC, unknown)), ErrDamaged, "no size"},
		"segment beyond the file":       {slices.Concat(webmHead, open(idSegment, 1000), tracks, good), ErrDamaged, "claims 1000 bytes"},
		"headers only":                  {live(info, tracks), ErrDamaged, "holds no audio"},
		"no tracks":                     {live(info), ErrDamaged, "describes no tracks"},
		"cluster first":                 {live(good, tracks), ErrDamaged, "before any description"},
		"empty tracks":                  {live(el(idTracks), good), ErrNoAudio, "audio"},
		"only video":                    {live(el(idTracks, entry(1, 1)), good), ErrNoAudio, "audio"},
		"track number 0":                {live(el(idTracks, entry(0, 2)), good), ErrDamaged, "track number 0"},
		"track number twice":            {live(el(idTracks, entry(1, 2), entry(1, 1)), good), ErrDamaged, "track number 1"},
		"many tracks":                   {live(el(idTracks, manyTracks(1001)), good), ErrDamaged, "more than 1000 tracks"},
		"void of 2^56-2":                {live(open(0xEC, 1<<56-2), tracks, good), ErrDamaged, "claims 72057594037927934"},
		"info of unknown size":          {live(open(idInfo, unknown), tracks, good), ErrDamaged, "no size"},
		"child beyond its parent":       {live(el(idInfo, open(idDuration, 8)), tracks, good), ErrDamaged, "but 0 follow"},
		"child of unknown size":         {live(el(idTracks, open(idTrackEntry, unknown)), good), ErrDamaged, "no size"},
		"long number":                   {live(el(idInfo, el(idTimestampScale, make([]byte, 9))), tracks, good), ErrDamaged, "9 bytes"},
		"odd float":                     {live(el(idInfo, el(idDuration, make([]byte, 5))), tracks, good), ErrDamaged, "number of 5 bytes"},
		"long float":                    {live(el(idInfo, el(idDuration, make([]byte, 10))), tracks, good), ErrDamaged, "10 bytes"},
		"long text":                     {live(el(idTracks, entry(1, 2, el(idCodecID, make([]byte, 300)))), good), ErrDamaged, "300 bytes"},
		"large private":                 {live(el(idTracks, entry(1, 2, el(idCodecPrivate, make([]byte, maxPrivateBytes+1)))), good), ErrUnsupported, "codec header"},
		"zlib":                          {encoding(el(idCompression, num(idCompressionAlgo, 0))), ErrUnsupported, "compressed"},
		"compression by default":        {encoding(), ErrUnsupported, "compressed"},
		"encryption":                    {encoding(num(idEncodingType, 1)), ErrUnsupported, "encrypted"},
		"stripped header":               {encoding(num(idEncodingScope, 3), el(idCompression, num(idCompressionAlgo, 3))), ErrUnsupported, "codec header"},
		"large stripped part":           {encoding(el(idCompression, num(idCompressionAlgo, 3), el(idCompressionSetting, make([]byte, 2000)))), ErrDamaged, "2000 bytes"},
		"two encodings":                 {live(el(idTracks, entry(1, 2, el(idContentEncodings, el(idContentEncoding, el(idCompression, num(idCompressionAlgo, 3))), el(idContentEncoding)))), good), ErrUnsupported, "more than once"},
		"second file, live":             {recording(good, webmHead), ErrDamaged, "another file"},
		"second file within headers":    {live(info, webmHead), ErrDamaged, "another file"},
		"second segment":                {recording(open(idCluster, unknown), open(idSegment, unknown), tracks), ErrDamaged, "another file"},
		"second file behind":            {slices.Concat(webmHead, el(idSegment, tracks, good), recording(good)), ErrDamaged, "another file"},
		"cluster behind":                {slices.Concat(webmHead, el(idSegment, tracks, good), good), ErrDamaged, "another file"},
		"cluster beyond the file":       {recording(open(idCluster, 100), simple(0, 'a')), ErrDamaged, "claims 100 bytes"},
		"block beyond its cluster":      {recording(open(idCluster, 9), simple(0, 'a'), good), ErrDamaged, "but 0 follow"},
		"block cut off":                 {recording(open(idCluster, unknown), simple(0, 'a', 'b')[:14]), ErrDamaged, "claims 6 bytes"},
		"element cut off":               {recording(open(idCluster, unknown), []byte{0xA3, 0x40}), ErrDamaged, "cut off"},
		"block of unknown size":         {recording(cluster(0, open(idSimpleBlock, unknown))), ErrDamaged, "no size"},
		"group of unknown size":         {recording(open(idCluster, unknown), open(idBlockGroup, unknown)), ErrDamaged, "no size"},
		"cues of unknown size":          {recording(good, open(idCues, unknown)), ErrDamaged, "no size"},
		"zeros in a cluster":            {recording(open(idCluster, unknown), simple(0, 'a'), make([]byte, 10)), ErrDamaged, "begins no element"},
		"zeros behind clusters":         {recording(good, make([]byte, 10)), ErrDamaged, "begins no element"},
		"reserved ID":                   {recording(good, []byte{0xFF, 0x80}), ErrDamaged, "ff is no element"},
		"other reserved ID":             {recording(good, []byte{0x80, 0x80}), ErrDamaged, "80 is no element"},
		"empty block":                   {recording(cluster(0, el(idSimpleBlock))), ErrDamaged, "cut off"},
		"block of a number":             {recording(cluster(0, el(idSimpleBlock, []byte{0x81}))), ErrDamaged, "block of 1 bytes"},
		"block of a half head":          {recording(cluster(0, el(idSimpleBlock, []byte{0x81, 0, 0}))), ErrDamaged, "block of 3 bytes"},
		"lace without a number":         {recording(cluster(0, el(idSimpleBlock, block(0, laceXiph)))), ErrDamaged, "block of 4 bytes"},
		"xiph lace without end":         {recording(cluster(0, el(idSimpleBlock, block(0, laceXiph, 1, 255)))), ErrDamaged, "ends in its header"},
		"xiph lace too large":           {recording(cluster(0, el(idSimpleBlock, block(0, laceXiph, 1, 5, 1, 1)))), ErrDamaged, "larger than it is"},
		"xiph laces into the header":    {recording(cluster(0, el(idSimpleBlock, block(0, laceXiph, 2, 2, 1)))), ErrDamaged, "larger than it is|do not fit"},
		"fixed lace uneven":             {recording(cluster(0, el(idSimpleBlock, block(0, laceFixed, 1, 1, 2, 3)))), ErrDamaged, "do not fit"},
		"ebml lace of nothing":          {recording(cluster(0, el(idSimpleBlock, block(0, laceEBML, 1, 0)))), ErrDamaged, "begins no element|cut off"},
		"ebml lace negative":            {recording(cluster(0, el(idSimpleBlock, block(0, laceEBML, 2, 0x81, 0x80, 1, 2, 3)))), ErrDamaged, "larger than it is"},
		"ebml lace huge":                {recording(cluster(0, el(idSimpleBlock, block(0, laceEBML, 1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFE, 1)))), ErrDamaged, "larger than it is"},
		"two blocks in a group":         {recording(cluster(0, el(idBlockGroup, el(idBlock, block(0, 0, 'a')), el(idBlock, block(0, 0, 'b'))))), ErrDamaged, "two blocks"},
		"encrypted block":               {recording(cluster(0, el(idEncryptedBlock, []byte{1}))), ErrUnsupported, "encrypted"},
		"long time":                     {recording(el(idCluster, el(idTimestamp, make([]byte, 9)))), ErrDamaged, "9 bytes"},
		"packet larger than any":        {recording(cluster(0, simple(0, make([]byte, MaxPacketBytes+1)...))), ErrDamaged, "a packet of"},
		"discard of 9 bytes":            {recording(cluster(0, el(idBlockGroup, el(idBlock, block(0, 0)), el(idDiscardPadding, make([]byte, 9))))), ErrDamaged, "9 bytes"},
		"child of a group out of it":    {recording(cluster(0, el(idBlockGroup, open(idBlock, 9)), simple(0, 'a'))), ErrDamaged, "but 0 follow"},
		"a segment that ends too early": {slices.Concat(webmHead, open(idSegment, int64(len(tracks))+3), tracks, good), ErrDamaged, "cut off"},
	} {
		_, _, _, err := all(c.file)
		var e *Error
		fine := false
		for _, want := range strings.Split(c.want, "|") {
			fine = fine || err != nil && strings.Contains(err.Error(), want)
		}
		if !errors.As(err, &e) || !errors.Is(err, c.kind) || !fine {
			t.Errorf("%s: %v, want %v: %s", name, err, c.kind, c.want)
		}
	}
}

func manyTracks(n uint64) (b []byte) {
	for i := range n {
		b = append(b, entry(i+1, 1)...)
	}
	return b
}
