package probe

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// inOneFragment puts 16 packets behind an empty movie. Each traf is made of where the packets are.
func inOneFragment(mvex []byte, trafs func(at uint32) []byte) func(*mp4Parts) {
	return func(p *mp4Parts) {
		*p = p.fragmented(mvex, moof(strings.Repeat(silentAAC, 16), trafs))
	}
}

func TestMP4Fragments(t *testing.T) {
	t.Parallel()
	tfhd := mp4Flagged("tfhd", tfhdBaseIsMoof, uint32(1))
	same := func(at uint32) []byte { // all sizes by default
		return mp4Box("traf", tfhd, mp4Flagged("trun", trunOffset, uint32(16), at))
	}
	all := trex(1024, 4)
	tests := []mp4Case{
		{"sizes of the track", inOneFragment(all, same), "", "", 2.048},
		{"sizes of the fragment", inOneFragment(trex(0, 0), func(at uint32) []byte {
			return mp4Box("traf", mp4Flagged("tfhd", tfhdBaseIsMoof|tfhdTicks|tfhdBytes, uint32(1), uint32(1024), uint32(4)), mp4Flagged("trun", trunOffset, uint32(16), at))
		}), "", "", 2.048},
		{"sizes of the samples", inOneFragment(trex(0, 0), func(at uint32) []byte {
			entry := put(be, uint32(1024), uint32(4), uint32(0), uint32(0))
			return mp4Box("traf", tfhd, mp4Flagged("trun", trunOffset|trunFirstFlags|trunTicks|trunBytes|trunFlags|trunShift,
				uint32(16), at, uint32(0), bytes.Repeat(entry, 16)))
		}), "", "", 2.048},
		{"two runs, one behind the other", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", tfhd, mp4Flagged("trun", trunOffset, uint32(9), at), mp4Flagged("trun", 0, uint32(7)))
		}), "", "", 2.048},
		{"a run of none", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", tfhd, mp4Flagged("trun", 0, uint32(0)), mp4Flagged("trun", trunOffset, uint32(16), at))
		}), "", "", 2.048},
		{"places in the file", func(p *mp4Parts) {
			*p = aacMP4(16).fragmented(all)
			at := len(p.file())
			*p = p.fragmented(all, moof(strings.Repeat(silentAAC, 16), func(media uint32) []byte {
				return mp4Box("traf", mp4Flagged("tfhd", 1, uint32(1), uint64(at)), mp4Flagged("trun", trunOffset, uint32(16), media))
			}))
		}, "", "", 2.048},
		{"another track's samples", inOneFragment(all, func(at uint32) []byte {
			return put(be, same(at), mp4Box("traf", mp4Flagged("tfhd", 0, uint32(2)), mp4Flagged("trun", 0, uint32(1<<32-1))))
		}), "", "", 2.048},
		{"two fragments, between them other boxes", func(p *mp4Parts) {
			f := moof(strings.Repeat(silentAAC, 16), same)
			*p = p.fragmented(all, mp4Box("styp", "msdh"), mp4Full("sidx", make([]byte, 40)), f, mp4Box("emsg", "..."), f, mp4Box("mfra"))
		}, "", "", 4.096},
		{"samples in the movie and in a fragment", func(p *mp4Parts) {
			p.mdhd = mp4Full("mdhd", uint64(0), uint32(8000), uint32(0), uint32(0))
			p.more, p.behind = all, moof(strings.Repeat(silentAAC, 16), same)
		}, "", "", 4.096},
		{"a right claim of all", inOneFragment(mehd(16384), same), "", "", 2.048},
		{"no fragments", func(p *mp4Parts) { *p = p.fragmented(all) }, isBroken, "no audio", 0},

		{"a wrong claim of all", inOneFragment(mehd(160000), same), isBroken, "claims 20.000 s", 0},
		{"4 billion samples", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", tfhd, mp4Flagged("trun", trunOffset, uint32(1<<32-1), at))
		}), isBroken, "cut off", 0},
		{"4 billion samples in a table", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", tfhd, mp4Flagged("trun", trunOffset|trunBytes, uint32(1<<32-1), at, uint32(4)))
		}), isBroken, "more than its", 0},
		{"samples of no bytes", inOneFragment(trex(1024, 0), same), isBroken, "no bytes", 0},
		{"samples before the file", inOneFragment(all, func(uint32) []byte {
			return mp4Box("traf", tfhd, mp4Flagged("trun", trunOffset, uint32(16), int32(-1<<31)))
		}), isBroken, "cut off", 0},
		{"samples far behind the file", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", mp4Flagged("tfhd", 1, uint32(1), uint64(1<<64-1)), mp4Flagged("trun", trunOffset, uint32(16), at))
		}), isBroken, "cut off", 0},
		{"no tfhd", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", mp4Flagged("trun", trunOffset, uint32(16), at))
		}), isBroken, "no tfhd", 0},
		{"two tfhd", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", tfhd, tfhd)
		}), isBroken, "two boxes", 0},
		{"a short tfhd", inOneFragment(all, func(at uint32) []byte { return mp4Box("traf", mp4Flagged("tfhd", tfhdBytes, uint32(1))) }), isBroken, "too short", 0},
		{"a short trun", inOneFragment(all, func(at uint32) []byte { return mp4Box("traf", tfhd, mp4Box("trun")) }), isBroken, "too short", 0},
		{"places behind another track's samples", inOneFragment(all, func(at uint32) []byte {
			return put(be, mp4Box("traf", mp4Flagged("tfhd", 0, uint32(2))), mp4Box("traf", mp4Flagged("tfhd", 0, uint32(1)), mp4Flagged("trun", 0, uint32(16))))
		}), isUnsupported, "relative", 0},
		{"another setup", inOneFragment(all, func(at uint32) []byte {
			return mp4Box("traf", mp4Flagged("tfhd", tfhdBaseIsMoof|tfhdDescription, uint32(1), uint32(2)), mp4Flagged("trun", trunOffset, uint32(16), at))
		}), isBroken, "sample entry 2", 0},
		{"another movie behind", func(p *mp4Parts) {
			inOneFragment(all, same)(p)
			p.behind = append(p.behind, aacMP4(1).file()...)
		}, isBroken, "Another movie", 0},
	}
	for _, cut := range []int{1, 5, 70, 72, 75} { // of the media (64 bytes), the header of mdat, and moof
		tests = append(tests, mp4Case{"cut off", func(p *mp4Parts) {
			inOneFragment(all, same)(p)
			p.behind = p.behind[:len(p.behind)-cut]
		}, isBroken, "", 0})
	}
	checkMP4(t, tests)
}

// mehd claims a length of all fragments.
func mehd(ticks uint32) []byte {
	return mp4Box("mvex", mp4Full("mehd", ticks), mp4Full("trex", uint32(1), uint32(1), uint32(1024), uint32(4), uint32(0)))
}

// An hour in fragments that all hold the same bytes is counted, and one packet more is too long.
func TestMP4FragmentsAtTheLimit(t *testing.T) {
	t.Parallel()
	const hour = 28125 // packets
	for _, packets := range []uint32{hour, hour + 1} {
		p := aacMP4(0)
		var runs []byte
		for left := packets; left > 0; left -= min(left, 1000) {
			runs = append(runs, mp4Flagged("trun", trunOffset, min(left, 1000), uint32(24))...)
		}
		p = p.fragmented(trex(1024, 4), moof(silentAAC, func(uint32) []byte {
			return mp4Box("traf", mp4Flagged("tfhd", 1, uint32(1), uint64(8)), runs)
		}))
		file := append(p.file(), make([]byte, 5000)...)
		file = put(be, mp4Box("free", make([]byte, 5000)), file[:len(file)-5000])
		audio, err := New(Config{FFmpeg: installed, MaxDuration: time.Hour}).Probe(t.Context(), bytes.NewReader(file), int64(len(file)))
		if long := audio.Duration > time.Hour; err != nil || long != (packets > hour) || !long && audio.Duration != time.Hour {
			t.Errorf("%d packets: %+v, %v", packets, audio, err)
		}
	}
}
