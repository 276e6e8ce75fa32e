package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"time"

	"github.com/aviary-asr/aviary/probe/mp3"
	"github.com/aviary-asr/aviary/probe/mp4"
)

// cafCodec is what it takes to decode packets of CAF.
type cafCodec struct {
	codec    codec
	setup    []byte
	rate     int // Hz, of what is decoded
	channels int
	fixed    int64                            // sample frames of each packet, at that rate; 0: see frames
	frames   func(data []byte) (int64, error) // of a packet
	last     func(data []byte) int64          // of the last packet by its first bytes, if that may be shorter than fixed
	bits     int
}

// cafCodecs are the codecs in packets that are known.
var cafCodecs = map[string]func(*cafFile) (cafCodec, error){
	"aac": (*cafFile).aac, "aach": (*cafFile).aac, "aacp": (*cafFile).aac, "aacl": (*cafFile).aac, "aace": (*cafFile).aac,
	"alac": (*cafFile).alac,
	"opus": (*cafFile).opus,
	".mp3": (*cafFile).mp3,
}

// cafOthers names codecs that are not decoded.
var cafOthers = map[string]string{
	"MAC3": "MACE 3:1", "MAC6": "MACE 6:1", "QDM2": "QDesign Music 2", "QDMC": "QDesign Music", "Qclp": "Qualcomm PureVoice", ".mp1": "MPEG Layer I",
	".mp2": "MPEG Layer II", "ac-3": "AC-3", "ec-3": "Enhanced AC-3", "flac": "FLAC in CAF", "ilbc": "iLBC", "samr": "AMR", "GSM": "GSM 6.10", "usac": "xHE-AAC",
}

// maxKukiBytes bounds a codec's private data.
const maxKukiBytes = 64 << 10

// cookie reads the kuki chunk; nil if there is none.
func (f *cafFile) cookie() ([]byte, error) {
	if f.kuki.id == "" {
		return nil, nil
	}
	if f.kuki.size > maxKukiBytes {
		return nil, broken("The CAF file's kuki chunk has %d bytes.", f.kuki.size)
	}
	b := make([]byte, f.kuki.size)
	return b, f.source.bytes(b, f.kuki.body)
}

// aac reads an MPEG-4 descriptor, before which some writers put the version of an esds box.
func (f *cafFile) aac() (cafCodec, error) {
	b, err := f.cookie()
	if err != nil {
		return cafCodec{}, err
	}
	if len(b) >= 4 && b[0] == 0 {
		b = b[4:]
	}
	d, err := mp4.ParseDescriptor(b)
	if err != nil {
		return cafCodec{}, broken("The CAF file's kuki chunk, of %d bytes, does not describe AAC.", len(b))
	}
	config, err := parseAudioSpecificConfig(d.Setup)
	if err != nil {
		return cafCodec{}, err
	}
	if r := f.desc.rate; r != config.rate && r != 2*config.rate && 2*r != config.rate { // SBR doubles it
		return cafCodec{}, broken("The CAF file's desc chunk gives %d Hz, and its AAC has %d Hz.", r, config.rate)
	}
	return cafCodec{codec: codecAAC, setup: d.Setup, rate: config.rate, channels: config.channels, fixed: config.frames}, nil
}

// alac reads an ALACSpecificConfig, before which older writers put two atoms.
func (f *cafFile) alac() (cafCodec, error) {
	const atomsBytes = 24
	b, err := f.cookie()
	if err != nil {
		return cafCodec{}, err
	}
	if len(b) >= atomsBytes+alacConfigBytes && string(b[4:8]) == "frma" {
		b = b[atomsBytes:]
	}
	if len(b) < alacConfigBytes {
		return cafCodec{}, broken("The CAF file's kuki chunk, of %d bytes, does not describe Apple Lossless.", len(b))
	}
	config, err := parseALACConfig(b)
	if err == nil {
		err = checkLimits(int64(config.rate), int64(config.channels))
	}
	if err != nil {
		return cafCodec{}, err
	}
	if !config.plausibleFrames() || config.rate != f.desc.rate || config.channels != f.desc.channels || f.desc.packetFrames != config.frames {
		return cafCodec{}, broken("The CAF file's desc and kuki chunks disagree about the rate, the channels or the length of packets.")
	}
	c := cafCodec{codec: codecALAC, setup: config.setup, rate: config.rate, channels: config.channels, fixed: config.frames, bits: config.bits}
	c.last = func(data []byte) int64 { return alacFrames(data, config.frames) }
	return c, nil
}

// opus makes the header that CAF does not keep.
func (f *cafFile) opus() (cafCodec, error) {
	if f.desc.channels > 2 {
		return cafCodec{}, unsupported("The CAF file holds Opus with %d channels, which is not supported.", f.desc.channels)
	}
	head := append([]byte(opusMagic), 1, byte(f.desc.channels), 0, 0)
	head = binary.LittleEndian.AppendUint32(head, uint32(f.desc.rate))
	head = append(head, 0, 0, 0)
	return cafCodec{codec: codecOpus, setup: head, rate: opusRate, channels: f.desc.channels, frames: opusPacketFrames}, nil
}

func (f *cafFile) mp3() (cafCodec, error) {
	frames := func(data []byte) (int64, error) {
		n, err := mp3PacketFrames(data)
		if h, ok := mp3.ParseHeader(data); err == nil && ok && (h.Rate != f.desc.rate || h.Channels() != f.desc.channels) {
			err = broken("The CAF file's desc chunk gives %d Hz and %d channels, and its MP3 has %d Hz and %d.", f.desc.rate, f.desc.channels, h.Rate, h.Channels())
		}
		return n, err
	}
	return cafCodec{codec: codecMP3, rate: f.desc.rate, channels: f.desc.channels, frames: frames}, nil
}

// cafTable is the start of the pakt chunk.
type cafTable struct {
	packets            int64
	valid              int64 // frames to be heard, at the desc chunk's rate
	priming, remainder int64 // frames before and behind
	at, bytes          int64 // of the sizes
}

const cafTableHeadBytes = 24

// maxPriming is how much of the start may not be for hearing.
const maxPriming = time.Second

// table reads the start of the pakt chunk; nil if there is none.
func (f *cafFile) table() (*cafTable, error) {
	if f.pakt.id == "" {
		return nil, nil
	}
	b, err := cafChunks.read(f.source, f.pakt, cafTableHeadBytes)
	if err != nil {
		return nil, err
	}
	t := &cafTable{
		packets: int64(binary.BigEndian.Uint64(b)), valid: int64(binary.BigEndian.Uint64(b[8:])),
		priming: int64(int32(binary.BigEndian.Uint32(b[16:]))), remainder: int64(int32(binary.BigEndian.Uint32(b[20:]))),
		at: f.pakt.body + cafTableHeadBytes, bytes: f.pakt.size - cafTableHeadBytes,
	}
	switch {
	case t.packets < 0 || t.valid < 0 || t.priming < 0 || t.remainder < 0:
		return nil, broken("The CAF file's pakt chunk has negative numbers.")
	case durationOf(t.priming, f.desc.rate) > maxPriming:
		return nil, broken("The CAF file's pakt chunk leaves out %.3f s at the start.", durationOf(t.priming, f.desc.rate).Seconds())
	case f.desc.packetBytes == 0 && t.packets > t.bytes:
		return nil, broken("The CAF file's pakt chunk claims %d packets in %d bytes.", t.packets, t.bytes)
	}
	return t, nil
}

// packets makes a track of coded packets.
func (f *cafFile) packets() (track, error) {
	open := cafCodecs[f.desc.format]
	if open == nil {
		if name := cafOthers[f.desc.format]; name != "" {
			return nil, unsupported("The CAF file's samples are %s, which is not supported.", name)
		}
		return nil, unsupported("The CAF file's samples are coded in an unknown way, %q.", f.desc.format)
	}
	c, err := open(f)
	if err != nil {
		return nil, err
	}
	t, err := f.table()
	if err != nil {
		return nil, err
	}
	if t == nil && f.desc.packetBytes == 0 {
		return nil, broken("The CAF file has no pakt chunk, without which its packets cannot be told apart.")
	}
	if c.fixed > 0 && c.fixed != f.desc.packetFrames && c.fixed*int64(f.desc.rate) != f.desc.packetFrames*int64(c.rate) {
		return nil, broken("The CAF file's desc chunk gives %d frames per packet, and its codec has %d.", f.desc.packetFrames, c.fixed)
	}
	st := stream{
		container: "caf", codec: c.codec, rate: c.rate, channels: c.channels, setup: c.setup, claimed: unknown, keep: unknown, bits: c.bits,
		packets: func(counting bool) packetReader { return f.reader(c, t, counting) },
	}
	if t != nil && t.valid > 0 {
		scale := func(frames int64) int64 { return mp4.Scale(frames, uint64(c.rate), uint64(f.desc.rate)) }
		st.claimed, st.skip = scale(t.valid), scale(t.priming)
		// The end is trimmed where the numbers agree, and is no longer than encoders need; else all counts, and the claim has to stand up to it.
		all := t.packets * f.desc.packetFrames
		if f.desc.packetFrames > 0 && f.desc.packetFrames <= maxALACFrames && t.packets <= 1<<40 && t.priming+t.valid+t.remainder == all && t.remainder <= maxRemainderPackets*f.desc.packetFrames {
			st.keep = st.claimed
		}
		st.loose = scale(f.desc.packetFrames)
	}
	return newCodedTrack(f.source, st)
}

// maxRemainderPackets is how many packets may be left out at the end: a decoder's delay and what fills up the last.
const maxRemainderPackets = 4

func (f *cafFile) reader(c cafCodec, t *cafTable, counting bool) packetReader {
	r := &cafPackets{source: f.source, codec: c, desc: f.desc, counting: counting, size: f.desc.packetBytes, at: f.data.at, left: f.data.bytes}
	r.data = bufio.NewReaderSize(f.source.section(f.data.at, f.data.bytes), pcmBufferBytes)
	if t != nil {
		r.packets = t.packets
		r.table = bufio.NewReaderSize(f.source.section(t.at, t.bytes), pcmBufferBytes/4)
	}
	if r.size > 0 && (t == nil || t.packets == 0) {
		r.packets = f.data.bytes / r.size
	}
	return r
}

// cafPackets walks through the packets and the table of their sizes.
type cafPackets struct {
	source   *source
	codec    cafCodec
	desc     *cafDescription
	counting bool
	packets  int64 // left
	size     int64 // of each; 0: the table has them
	table    *bufio.Reader
	data     *bufio.Reader
	at, left int64 // bytes of data
	buf      []byte
}

// maxCAFPacketBytes bounds packets: eight channels of 32 bits in the longest blocks that encoders write need half.
const maxCAFPacketBytes = 256 << 10

// next implements packetReader.
func (p *cafPackets) next(context.Context) (packet, error) {
	if p.packets == 0 {
		return packet{}, io.EOF
	}
	p.packets--
	size, err := p.nextSize()
	if err != nil {
		return packet{}, err
	}
	switch {
	case size > p.left:
		return packet{}, broken("The CAF file ends within its packets.")
	case size > maxCAFPacketBytes || size == 0:
		return packet{}, broken("The CAF file has a packet of %d bytes.", size)
	}
	at := p.at
	p.at += size
	p.left -= size
	if p.counting && p.codec.fixed > 0 { // the data need not be read
		n, err := p.frames(nil, at, size)
		return packet{frames: n}, err
	}
	if int64(cap(p.buf)) < size {
		p.buf = make([]byte, size)
	}
	p.buf = p.buf[:size]
	if _, err := io.ReadFull(p.data, p.buf); err != nil {
		return packet{}, err
	}
	n, err := p.frames(p.buf, at, size)
	return packet{data: p.buf, frames: n}, err
}

// frames is how many sample frames a packet has, which stands at a place in the file.
func (p *cafPackets) frames(data []byte, at, size int64) (int64, error) {
	switch {
	case p.codec.fixed > 0 && p.packets == 0 && p.codec.last != nil:
		head := make([]byte, min(size, alacHeadBytes))
		err := p.source.bytes(head, at)
		return p.codec.last(head), err
	case p.codec.fixed > 0:
		return p.codec.fixed, nil
	}
	n, err := p.codec.frames(data)
	if want := p.desc.packetFrames; err == nil && want > 0 && n*int64(p.desc.rate) != want*int64(p.codec.rate) {
		err = broken("The CAF file has a packet of %d frames at %d Hz, and its desc chunk gives %d at %d Hz.", n, p.codec.rate, want, p.desc.rate)
	}
	return n, err
}

// nextSize reads the next entry of the table.
func (p *cafPackets) nextSize() (size int64, err error) {
	if size = p.size; size == 0 {
		if size, err = p.number(); err != nil {
			return 0, err
		}
	}
	if p.desc.packetFrames == 0 && p.table != nil { // the table has numbers of frames, too
		_, err = p.number()
	}
	return size, err
}

// number reads one of the table: seven bits in each byte, of which all but the last have the highest bit set.
func (p *cafPackets) number() (v int64, err error) {
	for range 5 { // 35 bits
		b, err := p.table.ReadByte()
		if errors.Is(err, io.EOF) {
			return 0, broken("The CAF file's pakt chunk ends before its last packet.")
		}
		if err != nil {
			return 0, err
		}
		v = v<<7 | int64(b&0x7F)
		if b&0x80 == 0 {
			return v, nil
		}
	}
	return 0, broken("The CAF file's pakt chunk has a number that is too long.")
}
