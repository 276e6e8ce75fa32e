package probe

import (
	"context"
)

// AC-3 and Enhanced AC-3 (ETSI TS 102 366): what the headers of their frames say. AC-3 without a container is an elementary stream, for which the
// rules of frameWalk hold.

// dolbyHeadBytes is what parseDolby needs.
const dolbyHeadBytes = 7

// dolbyHead is the header of a frame.
type dolbyHead struct {
	bytes          int
	frames         int64 // sample frames that it adds
	rate, channels int
	enhanced       bool
}

var (
	dolbyRates    = [3]int{48000, 44100, 32000}
	dolbyChannels = [8]int{2, 1, 2, 3, 3, 4, 4, 5} // by audio coding mode, without the low frequency channel
	dolbyBitrates = [19]int{32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 576, 640}
)

const dolbyBlockFrames = 256

// parseDolby reads a frame's header (section 4.4.1 and annex E.1.2).
func parseDolby(b []byte) (dolbyHead, bool) {
	if len(b) < dolbyHeadBytes || b[0] != 0x0B || b[1] != 0x77 {
		return dolbyHead{}, false
	}
	switch version := b[5] >> 3; {
	case version <= 10:
		return parseAC3(b, version)
	case version <= 16:
		return parseEAC3(b)
	}
	return dolbyHead{}, false
}

func parseAC3(b []byte, version byte) (h dolbyHead, ok bool) {
	rate, size, mode := b[4]>>6, int(b[4]&63), b[6]>>5
	if rate > 2 || size/2 >= len(dolbyBitrates) {
		return h, false
	}
	h = dolbyHead{frames: dolbyFrames, rate: dolbyRates[rate], channels: dolbyChannels[mode]}
	h.bytes = 2 * (dolbyBitrates[size/2] * 1000 * dolbyFrames / 16 / h.rate)
	if h.rate == 44100 {
		h.bytes += 2 * (size & 1)
	}
	if version > 8 {
		h.rate >>= version - 8 // half and quarter rates
	}
	lfe := 4 // the bit, behind two bits of each of these levels
	if mode&1 != 0 && mode != 1 {
		lfe -= 2 // center
	}
	if mode&4 != 0 || mode == 2 {
		lfe -= 2 // surround, or whether stereo holds it
	}
	h.channels += int(b[6] >> lfe & 1)
	return h, true
}

func parseEAC3(b []byte) (h dolbyHead, ok bool) {
	kind, rate, blocks, mode, lfe := b[2]>>6, b[4]>>6, b[4]>>4&3, b[4]>>1&7, b[4]&1
	h = dolbyHead{bytes: 2 * ((int(b[2]&7)<<8 | int(b[3])) + 1), channels: dolbyChannels[mode] + int(lfe), enhanced: true}
	n := [4]int64{1, 2, 3, 6}[blocks]
	if rate < 3 {
		h.rate = dolbyRates[rate]
	} else if blocks < 3 { // then the bits tell which half rate
		h.rate, n = dolbyRates[blocks]/2, 6
	}
	const independent, converted = 0, 2
	if program := b[2] >> 3 & 7; (kind == independent || kind == converted) && program == 0 {
		h.frames = n * dolbyBlockFrames // others add channels to it, or are other programs
	}
	return h, h.rate > 0 && kind < 3 && h.bytes > dolbyHeadBytes
}

// dolbyPacketFrames is how many sample frames a packet of whole frames decodes to.
func dolbyPacketFrames(packet []byte) (int64, error) {
	total := int64(0)
	for at := 0; at == 0 || at < len(packet); {
		h, ok := parseDolby(packet[at:])
		if !ok || h.bytes > len(packet)-at {
			return 0, broken("A packet of AC-3 does not hold whole frames.")
		}
		at += h.bytes
		total += h.frames
	}
	return total, nil
}

// parseAC3Stream is parseDolby of AC-3 for frameWalk.
func parseAC3Stream(b []byte) (frameHead, bool) {
	h, ok := parseDolby(b)
	return frameHead{bytes: h.bytes, frames: h.frames, kind: frameKind{name: "AC-3", rate: h.rate, channels: h.channels}}, ok && !h.enhanced
}

// parseEAC3Stream is parseDolby of Enhanced AC-3 for frameParser.chain. Frames may differ, since several may belong together.
func parseEAC3Stream(b []byte) (frameHead, bool) {
	h, ok := parseDolby(b)
	return frameHead{bytes: h.bytes, frames: h.frames, kind: frameKind{name: "Enhanced AC-3", rate: h.rate}}, ok && h.enhanced
}

// startsWith says whether frames of one kind stand at the very start of a file.
func (parse frameParser) startsWith(head []byte) bool {
	last := len(head) < headBytes
	_, n, ends := parse.chain(head, last)
	return n >= enoughFrames || ends || n > 0 && !last // a frame can have as many bytes as the head
}

func sniffAC3(head []byte) bool { return frameParser(parseAC3Stream).startsWith(head) }

func sniffEAC3(head []byte) bool { return frameParser(parseEAC3Stream).startsWith(head) }

func openAC3(_ context.Context, s *source) (track, error) {
	first, ok := parseAC3Stream(s.head)
	if !ok {
		return nil, broken("The file does not start with frames of AC-3.")
	}
	st := stream{container: "ac3", codec: codecAC3, rate: first.kind.rate, channels: first.kind.channels, claimed: unknown, keep: unknown}
	walk := frameWalk{source: s, parse: parseAC3Stream, sync: 0x0B, kind: first.kind}
	return newWalkedTrack(s, st, walk, func(b []byte, h frameHead, _ int64) (packet, error) {
		return packet{data: b, frames: h.frames}, nil
	})
}
