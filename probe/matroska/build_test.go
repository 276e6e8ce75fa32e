package matroska

import (
	"encoding/binary"
	"math"
	"slices"
)

// What tests build files from: each part can lie.

// el is an element with its true size.
func el(id uint32, parts ...[]byte) []byte { return appendElement(nil, id, slices.Concat(parts...)) }

// open is the header of an element that says a size, which may be unknown.
func open(id uint32, size int64) []byte { return appendHeader(nil, id, size) }

// num is an element with a number in as many bytes as it takes.
func num(id uint32, v uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, v)
	for len(b) > 1 && b[0] == 0 {
		b = b[1:]
	}
	return appendElement(nil, id, b)
}

func float(id uint32, v float64) []byte {
	return appendElement(nil, id, binary.BigEndian.AppendUint64(nil, math.Float64bits(v)))
}

var (
	webmHead = el(idEBML, el(idDocType, []byte("webm")))
	audio    = el(idAudio, float(idSamplingFrequency, 48000), num(idChannels, 2))
	info     = el(idInfo, num(idTimestampScale, 1e6), float(idDuration, 1234.5))
)

// entry is a track.
func entry(number, kind uint64, more ...[]byte) []byte {
	return el(idTrackEntry, num(idTrackNumber, number), num(idTrackType, kind), el(idCodecID, []byte("A_OPUS")), audio, slices.Concat(more...))
}

// live is a file as it is recorded: a Segment of unknown size.
func live(elements ...[]byte) []byte {
	return slices.Concat(webmHead, open(idSegment, unknown), slices.Concat(elements...))
}

// recording is a live file of one track.
func recording(clusters ...[]byte) []byte {
	return live(info, el(idTracks, entry(1, 2)), slices.Concat(clusters...))
}

// block is the content of a block of track 1.
func block(time int16, flags byte, data ...byte) []byte {
	return append([]byte{0x81, byte(time >> 8), byte(time), flags}, data...)
}

func simple(time int16, data ...byte) []byte { return el(idSimpleBlock, block(time, 0x80, data...)) }

func cluster(time uint64, elements ...[]byte) []byte {
	return el(idCluster, num(idTimestamp, time), slices.Concat(elements...))
}

// Lacing, as block's flags.
const (
	laceXiph  = 2
	laceFixed = 4
	laceEBML  = 6
)
