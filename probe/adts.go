package probe

import (
	"context"
	"fmt"
)

// ADTS: raw AAC (ISO 13818-7, section 6.2; ISO 14496-3, section 1.A.2.2). The frames are found by frameWalk, whose rules hold. They are counted as
// they are: no header tells how many samples at the start are the encoder's delay.

const (
	adtsHeadBytes = 7 // two more with a checksum
	adtsFrames    = 1024
)

func sniffADTS(head []byte) bool {
	_, _, ok := frameParser(parseADTS).find(head)
	return ok
}

// parseADTS reads a frame's header. The kind's detail is the AudioSpecificConfig.
func parseADTS(b []byte) (frameHead, bool) {
	if len(b) < adtsHeadBytes || b[0] != 0xFF || b[1]&0xF6 != 0xF0 {
		return frameHead{}, false
	}
	profile, rate, channels := int(b[2]>>6), int(b[2]>>2&15), int(b[2]&1)<<2|int(b[3]>>6)
	n := int(b[3]&3)<<11 | int(b[4])<<3 | int(b[5]>>5)
	if rate >= len(aacRates) || n <= adtsHead(b) {
		return frameHead{}, false
	}
	kind := frameKind{name: "AAC", rate: aacRates[rate], channels: aacChannels[channels]}
	kind.detail = (profile+1)<<11 | rate<<7 | channels<<3
	return frameHead{bytes: n, frames: adtsFrames * int64(b[6]&3+1), kind: kind}, true
}

// adtsHead is the length of a frame's header.
func adtsHead(b []byte) int {
	if b[1]&1 == 0 {
		return adtsHeadBytes + 2
	}
	return adtsHeadBytes
}

func openADTS(_ context.Context, s *source) (track, error) {
	at, first, ok := frameParser(parseADTS).find(s.head)
	if !ok {
		return nil, broken("The file does not start with frames of ADTS.")
	}
	if first.kind.channels == 0 {
		return nil, unsupported("The AAC file does not say in its headers how many channels it has, which is not supported.")
	}
	setup := []byte{byte(first.kind.detail >> 8), byte(first.kind.detail)}
	config, err := parseAudioSpecificConfig(setup)
	if err != nil {
		return nil, err
	}
	st := stream{container: "adts", codec: codecAAC, rate: config.rate, channels: config.channels, setup: setup, claimed: unknown, keep: unknown}
	if at > 0 {
		st.warnings = append(st.warnings, fmt.Sprintf("The first %d bytes are no audio and were left out.", at))
	}
	walk := frameWalk{source: s, parse: parseADTS, kind: first.kind, at: int64(at)}
	return newWalkedTrack(s, st, walk, func(b []byte, h frameHead, at int64) (packet, error) { // without the frame's header
		if h.frames != adtsFrames {
			return packet{}, unsupported("The AAC file has frames of several blocks, the first at byte %d, which are not supported.", at)
		}
		return packet{data: b[adtsHead(b):], frames: h.frames}, nil
	})
}
