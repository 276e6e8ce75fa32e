package matroska

import (
	"encoding/binary"
	"io"
	"math"
)

// Writer writes a Matroska stream of one audio track: headers, Clusters of unknown size, and a SimpleBlock for each packet. There are no sizes
// to go back to, no index, and neither delay nor padding: a reader gets all that the packets hold.
type Writer struct {
	w           io.Writer
	rate        int64
	frames      int64 // that were written
	clusterTime int64 // milliseconds
	inCluster   bool
	buf         []byte
}

// maxClusterMillis is well below what the 16 bits of a block's time hold.
const maxClusterMillis = 30000

// NewWriter writes the headers. Of t it uses the CodecID, Private, SampleRate, Channels and BitDepth (0: none is written).
func NewWriter(w io.Writer, t Track) (*Writer, error) {
	audio := appendElement(nil, idSamplingFrequency, binary.BigEndian.AppendUint64(nil, math.Float64bits(t.SampleRate)))
	audio = appendUint(audio, idChannels, uint64(t.Channels))
	if t.BitDepth > 0 {
		audio = appendUint(audio, idBitDepth, uint64(t.BitDepth))
	}
	entry := appendUint(nil, idTrackNumber, 1)
	entry = appendUint(entry, idTrackUID, 1)
	entry = appendUint(entry, idTrackType, trackTypeAudio)
	entry = appendElement(entry, idCodecID, []byte(t.CodecID))
	if len(t.Private) > 0 {
		entry = appendElement(entry, idCodecPrivate, t.Private)
	}
	entry = appendElement(entry, idAudio, audio)

	head := appendElement(nil, idDocType, []byte("matroska"))
	head = appendUint(head, idDocTypeVersion, 4)
	head = appendUint(head, idDocTypeReadVersion, 2)
	b := appendElement(nil, idEBML, head)
	b = appendHeader(b, idSegment, unknown)
	b = appendElement(b, idInfo, appendUint(nil, idTimestampScale, 1e6))
	b = appendElement(b, idTracks, appendElement(nil, idTrackEntry, entry))
	_, err := w.Write(b)
	return &Writer{w: w, rate: int64(t.SampleRate), buf: b}, err
}

// WritePacket writes a packet of so many sample frames, of which its time and that of the next one follow.
func (w *Writer) WritePacket(data []byte, frames int64) error {
	now := w.frames/w.rate*1000 + w.frames%w.rate*1000/w.rate
	w.frames += frames
	b := w.buf[:0]
	if !w.inCluster || now-w.clusterTime > maxClusterMillis {
		w.inCluster, w.clusterTime = true, now
		b = appendHeader(b, idCluster, unknown)
		b = appendUint(b, idTimestamp, uint64(now))
	}
	const track, keyframe = 0x81, 0x80
	offset := uint16(now - w.clusterTime)
	b = appendHeader(b, idSimpleBlock, int64(len(data))+4)
	b = append(b, track, byte(offset>>8), byte(offset), keyframe)
	b = append(b, data...)
	w.buf = b
	_, err := w.w.Write(b)
	return err
}

func appendID(b []byte, id uint32) []byte {
	for shift := 24; shift >= 0; shift -= 8 {
		if v := id >> shift; v != 0 {
			b = append(b, byte(v))
		}
	}
	return b
}

// appendHeader appends an element's ID and its size in 8 bytes.
func appendHeader(b []byte, id uint32, size int64) []byte {
	if size == unknown {
		size = 1<<56 - 1
	}
	return binary.BigEndian.AppendUint64(appendID(b, id), 1<<56|uint64(size))
}

func appendElement(b []byte, id uint32, content []byte) []byte {
	return append(appendHeader(b, id, int64(len(content))), content...)
}

func appendUint(b []byte, id uint32, v uint64) []byte {
	return appendElement(b, id, binary.BigEndian.AppendUint64(nil, v))
}
