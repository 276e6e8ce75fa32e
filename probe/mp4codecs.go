package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/aviary-asr/aviary/probe/mp3"
	"github.com/aviary-asr/aviary/probe/mp4"
)

// mp4Coding is how the samples of a track are coded.
type mp4Coding struct {
	codec          codec
	rate, channels int
	setup          []byte
	bits           int   // see about
	delay          int64 // frames that the codec's setup says are not to be heard
	loose          int64 // see about
	mostBytes      int64 // of a packet
	continuous     bool  // decoding must start at the first packet, which only prepares it: its time is that of no frames

	// One of three says how many frames a sample has:
	frameBytes int64                                 // PCM: so many bytes are one
	frames     int64                                 // all have as many
	counter    func() func(mp4Sample) (int64, error) // looking at it does; each walk has its own

	// unit is how many bytes the frame that starts with b has, where samples may have several and decoders take them one by one; otherwise nil.
	unit func(b []byte) int64
}

// Bounds of packets.
const (
	mp4PacketBytes         = 64 << 10 // the largest are those of AAC with 48 channels
	mp4LosslessPacketBytes = 1 << 20
)

// codingOf finds out how the samples of the track are coded, and refuses by name what is not supported.
func (m *mp4File) codingOf(ctx context.Context) (mp4Coding, error) {
	e := m.track.Entry
	switch e.Format {
	case "mp4a":
		return m.describedCoding(ctx)
	case "alac":
		return alacCoding(e, m.track.Timescale)
	case "Opus":
		return opusCoding(e)
	case "fLaC":
		return flacCoding(e)
	case ".mp3", "ms\x00\x55", ".mp2", "ms\x00\x50":
		return m.mpegCoding(ctx)
	case "ac-3", "ec-3":
		return m.dolbyCoding(ctx)
	case "samr":
		return amrCoding("amr_nb", "AMR", 8000, 0x57, &amrNarrow), nil
	case "sawb":
		return amrCoding("amr_wb", "AMR-WB", 16000, 0x58, &amrWide), nil
	}
	if f, ok := mp4PCM(e); ok {
		return m.pcmCoding(f)
	}
	if name, ok := mp4Codecs[e.Format]; ok {
		return mp4Coding{}, unsupported("The audio track is coded as %s, which is not supported.", name)
	}
	return mp4Coding{}, unsupported("The audio track is coded in an unknown way: %q.", e.Format)
}

// mp4Codecs names formats that are not decoded.
var mp4Codecs = map[string]string{
	"enca": "encrypted audio", "drms": "encrypted audio (FairPlay)", "sawp": "AMR-WB+", "sevc": "EVRC", "secb": "EVRC-B",
	"sqcp": "QCELP", "Qclp": "QCELP", "ssmv": "SMV", "ima4": "IMA ADPCM", "MAC3": "MACE 3:1", "MAC6": "MACE 6:1", "QDMC": "QDesign Music",
	"QDM2": "QDesign Music 2", "agsm": "GSM 6.10", "ms\x00\x02": "Microsoft ADPCM", "ms\x00\x11": "IMA ADPCM (Windows)", "ms\x00\x31": "GSM 6.10",
	"spex": "Speex", "ac-4": "AC-4", "mlpa": "Dolby TrueHD", "dtsc": "DTS", "dtsh": "DTS-HD", "dtsl": "DTS-HD", "dtse": "DTS Express", "dtsx": "DTS:X",
	"mha1": "MPEG-H 3D Audio", "mha2": "MPEG-H 3D Audio", "mhm1": "MPEG-H 3D Audio", "mhm2": "MPEG-H 3D Audio", "iamf": "IAMF", "dvca": "DV audio",
	"wma ": "Windows Media Audio", "owma": "Windows Media Audio", "g719": "G.719", "g726": "G.726", "ilbc": "iLBC", "celp": "CELP", "ulsp": "ALS",
	"aac ": "AAC without its description", ".mp1": "MPEG Layer I", "vdva": "DV audio", "cvsd": "CVSD", "XAVC": "XAVC",
}

// Object types of MPEG-4 (ISO 14496-1, table 5, and the registration authority at https://mp4ra.org).
const (
	objectAAC, objectAC3, objectEAC3, objectVorbis = 0x40, 0xA5, 0xA6, 0xDD
	objectAAC2Main, objectAAC2LC, objectAAC2SSR    = 0x66, 0x67, 0x68
	objectMPEG2, objectMPEG1                       = 0x69, 0x6B
)

var mp4Objects = map[byte]string{
	0xA0: "EVRC", 0xA1: "SMV", 0xA9: "DTS", 0xAA: "DTS-HD", 0xAB: "DTS-HD", 0xAC: "DTS Express", 0xD0: "a private format", 0xD1: "EVRC", 0xE0: "a private format", 0xE1: "QCELP",
}

// describedCoding is that of mp4a, whose esds box says which codec it is.
func (m *mp4File) describedCoding(ctx context.Context) (mp4Coding, error) {
	e := m.track.Entry
	d, err := e.Descriptor()
	if err != nil {
		return mp4Coding{}, err
	}
	switch d.ObjectType {
	case objectAAC, objectAAC2Main, objectAAC2LC, objectAAC2SSR:
		return aacCoding(d.Setup)
	case objectMPEG1, objectMPEG2:
		return m.mpegCoding(ctx)
	case objectAC3, objectEAC3:
		return m.dolbyCoding(ctx)
	case objectVorbis:
		return vorbisCoding(d.Setup)
	}
	if name, ok := mp4Objects[d.ObjectType]; ok {
		return mp4Coding{}, unsupported("The audio track is coded as %s, which is not supported.", name)
	}
	return mp4Coding{}, unsupported("The audio track is coded in an unknown way: object type 0x%02X.", d.ObjectType)
}

func aacCoding(setup []byte) (mp4Coding, error) {
	if len(setup) == 0 {
		return mp4Coding{}, broken("The AAC track has no configuration.")
	}
	a, err := parseAudioSpecificConfig(setup)
	if err != nil {
		return mp4Coding{}, err
	}
	return mp4Coding{codec: codecAAC, rate: a.rate, channels: a.channels, setup: setup, frames: a.frames, loose: 2 * a.frames, mostBytes: mp4PacketBytes}, nil
}

// alacCoding reads the ALACSpecificConfig, which stands behind version and flags.
func alacCoding(e *mp4.Entry, timescale uint32) (mp4Coding, error) {
	cookie := e.Box("alac")
	config, err := parseALACConfig(cookie[min(len(cookie), 4):])
	if err == nil {
		err = config.check()
	}
	if err != nil {
		return mp4Coding{}, err
	}
	c := mp4Coding{codec: codecALAC, rate: config.rate, channels: config.channels, setup: config.setup, bits: config.bits, loose: config.frames,
		mostBytes: mp4LosslessPacketBytes}
	c.counter = func() func(mp4Sample) (int64, error) {
		return func(s mp4Sample) (int64, error) { return s.alac(config.frames, int64(config.rate), int64(timescale)) }
	}
	return c, nil
}

// alac is the length of a packet, which has so many frames, but for the last one. That one is looked at, and others if the table of durations
// says that they are not as long.
func (s mp4Sample) alac(usual, rate, timescale int64) (int64, error) {
	if over := s.ticks - usual*timescale/rate; s.packets.counting && !s.last && over >= 0 && over <= 1 {
		return usual, nil
	}
	b, err := s.head(alacHeadBytes)
	if err != nil {
		return 0, err
	}
	n := alacFrames(b, usual)
	if n == 0 {
		return 0, broken("The packet of Apple Lossless at byte %d holds nothing.", s.at)
	}
	return n, nil
}

// opusCoding makes the Opus header of the dOps box, which has the same fields (Encapsulation of Opus in ISO BMFF, section 4.3.2), but in the
// other byte order.
func opusCoding(e *mp4.Entry) (mp4Coding, error) {
	b := e.Box("dOps")
	if len(b) < 11 {
		return mp4Coding{}, broken("The Opus track has no dOps box, or one that is too short.")
	}
	if b[0] != 0 {
		return mp4Coding{}, unsupported("The Opus track has a dOps box of version %d, which is not known.", b[0])
	}
	setup := append([]byte(opusMagic), 1, b[1])
	setup = binary.LittleEndian.AppendUint16(setup, binary.BigEndian.Uint16(b[2:]))
	setup = binary.LittleEndian.AppendUint32(setup, binary.BigEndian.Uint32(b[4:]))
	setup = binary.LittleEndian.AppendUint16(setup, binary.BigEndian.Uint16(b[8:]))
	setup = append(setup, b[10:]...)
	h, err := parseOpusHead(setup)
	if err != nil {
		return mp4Coding{}, err
	}
	count := func(s mp4Sample) (int64, error) {
		b, err := s.all()
		if err != nil {
			return 0, err
		}
		return h.frames(b)
	}
	return mp4Coding{codec: codecOpus, rate: opusRate, channels: h.channels, setup: setup, delay: h.preSkip, loose: maxOpusFrames, mostBytes: mp4PacketBytes,
		counter: func() func(mp4Sample) (int64, error) { return count }}, nil
}

// flacCoding takes the metadata blocks out of the dfLa box (Encapsulation of FLAC in ISO BMFF, section 3.3.2).
func flacCoding(e *mp4.Entry) (mp4Coding, error) {
	b := e.Box("dfLa")
	if len(b) < 4 {
		return mp4Coding{}, broken("The FLAC track has no dfLa box.")
	}
	setup := slices.Concat([]byte("fLaC"), b[4:])
	info, err := parseFLACSetup(setup)
	if err != nil {
		return mp4Coding{}, err
	}
	c := mp4Coding{codec: codecFLAC, rate: info.Rate, channels: info.Channels, setup: setup, loose: 4096, mostBytes: mp4LosslessPacketBytes}
	if info.Bits > 16 {
		c.bits = info.Bits
	}
	c.counter = func() func(mp4Sample) (int64, error) {
		packets := newFLACPackets(info)
		return func(s mp4Sample) (int64, error) { return packets.count(&mp4SampleReader{s, 0}) }
	}
	return c, nil
}

// mp4SampleReader reads a sample in pieces.
type mp4SampleReader struct {
	sample mp4Sample
	at     int64 // in it
}

// Read implements io.Reader.
func (r *mp4SampleReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), r.sample.bytes-r.at, mp4DataWindowBytes)
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	b, err := r.sample.packets.data.Bytes(r.sample.at+r.at, int(n))
	r.at += n
	return copy(p, b), err
}

func vorbisCoding(setup []byte) (mp4Coding, error) {
	t, err := newVorbisTiming(setup)
	if err != nil {
		return mp4Coding{}, err
	}
	counter := func() func(mp4Sample) (int64, error) {
		t := *t
		t.reset()
		return func(s mp4Sample) (int64, error) {
			b, err := s.head(16)
			if err != nil {
				return 0, err
			}
			return t.frames(b)
		}
	}
	return mp4Coding{codec: codecVorbis, rate: t.rate, channels: t.channels, setup: setup, loose: 8192, mostBytes: mp4PacketBytes,
		continuous: true, counter: counter}, nil
}

// mpegCoding is that of MPEG audio, whose packets say themselves what they are.
func (m *mp4File) mpegCoding(ctx context.Context) (mp4Coding, error) {
	b, err := m.firstBytes(ctx, 4)
	if err != nil {
		return mp4Coding{}, err
	}
	first, ok := mp3.ParseHeader(b)
	c := mp4Coding{codec: codecMP3, rate: first.Rate, channels: first.Channels(), loose: 2 * int64(first.Samples()), mostBytes: mp4PacketBytes}
	switch {
	case !ok:
		return mp4Coding{}, broken("The audio track does not start with MPEG audio.")
	case first.Layer == 1:
		return mp4Coding{}, unsupported("The audio track is coded as MPEG Layer I, which is not supported.")
	case first.Layer == 2:
		c.codec = codecMP2
	}
	count := func(s mp4Sample) (int64, error) {
		b, err := s.all()
		if err != nil {
			return 0, err
		}
		if h, ok := mp3.ParseHeader(b); ok && (h.Rate != first.Rate || h.Channels() != first.Channels()) {
			return 0, broken("The MPEG audio at byte %d has another sample rate or number of channels than the first.", s.at)
		}
		return mpegPacketFrames(b, first.Layer)
	}
	c.counter = func() func(mp4Sample) (int64, error) { return count }
	return c, nil
}

// dolbyFrames is how many sample frames a frame of AC-3 has, and a packet of Enhanced AC-3 (ETSI TS 102 366, annex F).
const dolbyFrames = 1536

// dolbyCoding is that of AC-3, whose packets say themselves what they are.
func (m *mp4File) dolbyCoding(ctx context.Context) (mp4Coding, error) {
	b, err := m.firstBytes(ctx, dolbyHeadBytes)
	if err != nil {
		return mp4Coding{}, err
	}
	h, ok := parseDolby(b)
	if !ok {
		return mp4Coding{}, broken("The audio track does not start with AC-3.")
	}
	c := mp4Coding{codec: codecAC3, rate: h.rate, channels: h.channels, loose: 2 * dolbyFrames, mostBytes: mp4PacketBytes}
	if h.enhanced {
		c.codec = codecEAC3
	}
	count := func(s mp4Sample) (int64, error) {
		b, err := s.all()
		if err != nil {
			return 0, err
		}
		return dolbyPacketFrames(b)
	}
	c.counter = func() func(mp4Sample) (int64, error) { return count }
	return c, nil
}

// amrCoding is that of AMR, whose packets hold frames of 20 ms, by whose first bytes their sizes are known (3GPP TS 26.244, section 6.5; RFC 4867, section
// 5.3). tag is how Windows, and ffmpeg, name the codec.
func amrCoding(name, title string, rate int, tag uint16, sizes *[16]int) mp4Coding {
	c := mp4Coding{codec: codecACM, rate: rate, channels: 1, mostBytes: mp4PacketBytes}
	c.codec.name, c.codec.title = name, title
	for _, field := range []uint16{tag, 1, uint16(rate), 0, 0, 0, 0, 0, 0} { // a WAVEFORMATEX: channels, rate; the rest says nothing
		c.setup = binary.LittleEndian.AppendUint16(c.setup, field)
	}
	frames := int64(rate / 50)
	c.loose = 2 * frames
	count := func(s mp4Sample) (total int64, err error) {
		b, err := s.all()
		for at := 0; err == nil && at < len(b); total += frames {
			size := sizes[b[at]>>3&15]
			at += 1 + max(size, 0)
			if size == 0 || at > len(b) {
				return 0, broken("The packet of %s at byte %d is damaged.", title, s.at)
			}
		}
		return total, err
	}
	c.counter = func() func(mp4Sample) (int64, error) { return count }
	c.unit = func(b []byte) int64 { return 1 + int64(max(sizes[b[0]>>3&15], 0)) }
	return c
}

// firstBytes are the first n bytes of the first sample, or as many as it has.
func (m *mp4File) firstBytes(ctx context.Context, n int64) ([]byte, error) {
	run, err := m.track.Runs(0).Next(ctx)
	if errors.Is(err, io.EOF) {
		return nil, broken("The audio track of the file is empty.")
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, min(run.Bytes, n))
	return b, m.bytes(b, run.At)
}

// rateOf is a rate in whole Hz; 0 for what is none.
func rateOf(rate float64) int {
	if rate >= 0 && rate <= math.MaxInt32 {
		return int(math.Round(rate))
	}
	return 0
}
