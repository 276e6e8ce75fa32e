package probe

// codec is one way to code samples.
type codec struct {
	name     string     // as ffmpeg names it: what users see in audio.codec
	title    string     // as people name it, for messages
	matroska string     // its CodecID in Matroska, by which ffmpeg is asked; empty: it is not asked
	pcm      *pcmFormat // what its samples are, where it is PCM
	// inside makes the decoder of this process; nil: there is none.
	inside func(st stream) (decoder, error)
	// canInside says whether inside decodes this stream; nil: it decodes every one.
	canInside func(st stream) bool
}

// The codecs whose packets demuxers hand over, and what stream.setup holds for each: always what Matroska keeps as CodecPrivate. PCM in packets
// is pcmCodec.
var (
	codecOpus   = codec{name: "opus", title: "Opus", matroska: "A_OPUS", inside: newOpusDecoder, canInside: opusInside}           // the OpusHead packet (RFC 7845, section 5.1)
	codecVorbis = codec{name: "vorbis", title: "Vorbis", matroska: "A_VORBIS", inside: newVorbisDecoder, canInside: vorbisInside} // the three header packets, with Xiph lacing
	codecFLAC   = codec{name: "flac", title: "FLAC", matroska: "A_FLAC", inside: newFLACPacketDecoder}                            // "fLaC" and the metadata blocks
	codecMP3    = codec{name: "mp3", title: "MP3", matroska: "A_MPEG/L3", inside: newMP3Decoder}                                  // nothing
	codecMP2    = codec{name: "mp2", title: "MPEG Layer II", matroska: "A_MPEG/L2"}                                               // nothing
	codecAAC    = codec{name: "aac", title: "AAC", matroska: "A_AAC"}                                                             // an AudioSpecificConfig (ISO 14496-3)
	codecALAC   = codec{name: "alac", title: "Apple Lossless", matroska: "A_ALAC"}                                                // the ALACSpecificConfig, without an atom's header
	codecAC3    = codec{name: "ac3", title: "AC-3", matroska: "A_AC3"}                                                            // nothing
	codecEAC3   = codec{name: "eac3", title: "Enhanced AC-3", matroska: "A_EAC3"}                                                 // nothing
	codecGSM    = codec{name: "gsm_ms", title: "GSM 6.10", matroska: "A_MS/ACM"}                                                  // a WAVEFORMATEX
	codecACM    = codec{name: "acm", title: "a Windows codec", matroska: "A_MS/ACM"}                                              // a WAVEFORMATEX; copies have names of their own
)

// builtin is how the stream is decoded in this process; nil where it is not.
func (c codec) builtin(st stream) func(stream) (decoder, error) {
	if c.inside == nil || c.canInside != nil && !c.canInside(st) {
		return nil
	}
	return c.inside
}
