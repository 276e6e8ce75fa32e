package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/mp4"
)

// MP4, M4A, 3GP and QuickTime movies. The boxes and tables are read by probe/mp4.
//
// The rules, where files contradict themselves:
//
//   - The samples that the tables list count, each with the frames that its codec makes of it, whatever the table of durations says. All of them
//     must lie within the file, also those that no one gets to hear.
//   - The duration of the media (mdhd; for fragments mehd; otherwise mvhd) is the claim. One that the table of durations bears out may
//     differ from what is counted by gaps in the recording and by the drift of its clock: see allowTimes.
//   - An edit list that presents one part of the media is obeyed: only that part is decoded, with half a second before it, and counts. If it
//     hides more than an encoder's delay, a warning says so. Edit lists of several parts, or of another speed, are refused: playing
//     everything would bring back what somebody has cut out.
//   - The first audio track that has samples is taken. A movie that has none is no recording.

// sniffMP4 knows the boxes that files start with. Some recorders reserve space for the header first.
func sniffMP4(head []byte) bool {
	if len(head) < 8 {
		return false
	}
	switch string(head[4:8]) {
	case "ftyp", "moov", "mdat", "styp", "moof", "sidx":
		return true
	case "wide", "free", "skip", "pnot": // also words: a box of this kind is small
		return head[0] < 8
	}
	return false
}

type mp4File struct {
	*source
	file   *mp4.File
	track  *mp4.Track
	coding mp4Coding

	claimed  int64 // frames of the media by the header; unknown
	loose    int64 // see about
	skip     int64 // frames of the media before those to be heard
	keep     int64 // those to be heard; unknown: up to the end
	drop     int64 // frames at the start that are not decoded: fewer than skip
	warnings []string
}

func openMP4(ctx context.Context, s *source) (track, error) {
	file, err := mp4.Parse(ctx, headFirst{s}, s.size)
	if err != nil {
		return nil, mp4Error(err)
	}
	m := &mp4File{source: s, file: file, track: file.Audio}
	switch {
	case m.track == nil:
		return nil, aviary.Errorf(aviary.CodeAudioNoStream, "", "The file has no audio track; it has %d of other kinds.", file.Tracks)
	case m.track.Entry == nil:
		return nil, broken("The audio track of the file is empty.")
	case file.AudioTracks > 1:
		m.warn("The file has %d audio tracks, of which the first is used.", file.AudioTracks)
	}
	if m.coding, err = m.codingOf(ctx); err != nil {
		return nil, mp4Error(err)
	}
	if err := checkLimits(int64(m.coding.rate), int64(m.coding.channels)); err != nil {
		return nil, err
	}
	if err := m.claim(ctx); err != nil {
		return nil, mp4Error(err)
	}
	if err := m.edit(ctx); err != nil {
		return nil, mp4Error(err)
	}
	return m.newTrack(ctx)
}

// headFirst reads a source, but for its head, which is in memory.
type headFirst struct{ *source }

// ReadAt implements io.ReaderAt.
func (r headFirst) ReadAt(p []byte, off int64) (int, error) {
	if off >= 0 && off+int64(len(p)) <= int64(len(r.head)) {
		return copy(p, r.head[off:]), nil
	}
	return r.source.ReadAt(p, off)
}

func (m *mp4File) warn(format string, args ...any) {
	m.warnings = append(m.warnings, fmt.Sprintf(format, args...))
}

// mp4Error turns an error of package mp4 into one of this package. Others stay what they are.
func mp4Error(err error) error {
	var e *mp4.Error
	switch {
	case !errors.As(err, &e):
		return err
	case e.Unsupported:
		return unsupported("%s", e.Detail)
	}
	return broken("%s", e.Detail)
}

func (m *mp4File) container() string {
	switch brand := m.file.Brand; {
	case brand == "" || brand == "qt  ":
		return "mov"
	case strings.HasPrefix(brand, "M4A") || strings.HasPrefix(brand, "M4B"):
		return "m4a"
	case strings.HasPrefix(brand, "3g"):
		return "3gp"
	}
	return "mp4"
}

// media and movie are ticks as frames; unknown stays unknown.
func (m *mp4File) media(ticks int64) int64 { return m.scale(ticks, m.track.Timescale) }
func (m *mp4File) movie(ticks int64) int64 { return m.scale(ticks, m.file.MovieTimescale) }

func (m *mp4File) scale(ticks int64, timescale uint32) int64 {
	if ticks == mp4.Unknown || timescale == 0 {
		return unknown
	}
	return mp4.Scale(ticks, uint64(m.coding.rate), uint64(timescale))
}

// claim finds what the header says of the length of the media.
func (m *mp4File) claim(ctx context.Context) error {
	m.loose = m.coding.loose
	alone := m.file.Tracks == 1 // times of the movie are those of its longest track
	switch {
	case m.file.Fragmented && alone:
		m.claimed = m.movie(m.file.FragmentDuration)
	case m.file.Fragmented:
		m.claimed = unknown
	case m.track.Duration != mp4.Unknown:
		m.claimed = m.media(m.track.Duration)
		return m.allowTimes(ctx)
	case alone && m.track.Edit == mp4.Edit{Length: mp4.Unknown}:
		m.claimed = m.movie(m.file.MovieDuration)
	default:
		m.claimed = unknown
	}
	return nil
}

// allowTimes allows for recordings whose times are those of a clock: phones and screen recorders write how long each packet took by theirs,
// and leave gaps where nothing was recorded. The claim may then be longer than what is counted by the gaps, which a warning tells of, and
// shorter by the drift of the clock.
//
// That holds only where the table of durations adds up to the claim, and most packets, the last one too, last about as long as they should.
func (m *mp4File) allowTimes(ctx context.Context) error {
	if m.coding.frames == 0 {
		return nil
	}
	counted := m.track.Samples * m.coding.frames
	differ := durationOf(m.claimed, m.coding.rate) - durationOf(counted, m.coding.rate)
	if differ.Abs() <= slack+durationOf(m.loose, m.coding.rate) {
		return nil
	}
	expected := mp4.Scale(m.coding.frames, uint64(m.track.Timescale), uint64(m.coding.rate))
	sum, regular, last, err := m.track.Times(ctx, expected)
	if err != nil {
		return err
	}
	rate := int64(m.coding.rate)
	if sum != m.track.Duration || regular < m.track.Samples-m.track.Samples/10 || last > 2*expected {
		return nil
	}
	switch gaps := m.claimed - counted; {
	case gaps > rate/2:
		m.warn("The recording has gaps of %.1f s in all; times count without them.", differ.Seconds())
		m.loose += gaps
	case gaps > 0:
		m.loose += gaps
	case -gaps <= m.claimed/100+rate/4:
		m.loose -= gaps
	}
	return nil
}

// edit finds the part that is to be heard.
func (m *mp4File) edit(ctx context.Context) error {
	rate := int64(m.coding.rate)
	e := m.track.Edit
	m.skip, m.keep = max(m.media(e.Start), m.coding.delay), m.movie(e.Length)
	if m.coding.continuous {
		first, err := m.track.Runs(0).Next(ctx)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		silent := m.media(first.Ticks)
		m.skip = max(m.skip-silent, 0)
		if m.claimed != unknown {
			m.claimed = max(m.claimed-silent, 0)
		}
	}
	if delay := m.movie(e.Delay); delay > rate/2 {
		m.warn("The audio starts %.1f s after the beginning of the file; times count from where it starts.", durationOf(delay, m.coding.rate).Seconds())
	}
	hidden := m.skip
	if m.keep != unknown && m.claimed != unknown {
		hidden += max(m.claimed-m.skip-m.keep, 0)
	}
	if padding := max(rate/4, 4*m.coding.frames); hidden > padding {
		m.warn("The edit list of the file hides %.1f s of its audio; only the rest is used.", durationOf(hidden, m.coding.rate).Seconds())
	}
	return nil
}

// heardClaim is how many frames the header says are to be heard.
func (m *mp4File) heardClaim() int64 {
	if m.claimed == unknown {
		return m.keep
	}
	n := max(m.claimed-m.skip, 0)
	if m.keep != unknown {
		n = min(n, m.keep)
	}
	return n
}

func (m *mp4File) newTrack(ctx context.Context) (track, error) {
	if rate := int64(m.coding.rate); m.skip > rate { // decoders need little of what is before
		if m.coding.continuous {
			return nil, unsupported("The edit list of the file hides the start of %s, which is not supported.", m.coding.codec.title)
		}
		var err error
		if m.drop, err = newMP4Packets(m, true).discard(ctx, m.skip-rate/2); err != nil {
			return nil, err
		}
	}
	t := &mp4Track{file: m}
	inner, err := newCodedTrack(m.source, stream{
		container: m.container(), codec: m.coding.codec, rate: m.coding.rate, channels: m.coding.channels, bits: m.coding.bits, setup: m.coding.setup,
		claimed: m.heardClaim(), skip: m.skip - m.drop, keep: m.keep, loose: m.loose, warnings: m.warnings,
		packets: func(counting bool) packetReader {
			p := newMP4Packets(m, counting)
			p.ended = func() { t.whole.Store(true) }
			return p
		},
	})
	if err != nil {
		return nil, err
	}
	t.track = inner
	return t, nil
}

// mp4Track is the track of an MP4 file. What an edit list hides is not decoded, but looked at for whether it is there.
type mp4Track struct {
	track
	file  *mp4File
	whole atomic.Bool // all packets were there
}

func (t *mp4Track) read(ctx context.Context, dst []float32) (int, error) {
	n, err := t.track.read(ctx, dst)
	if !errors.Is(err, io.EOF) || t.whole.Load() {
		return n, err
	}
	packets := newMP4Packets(t.file, true)
	for {
		if _, err := packets.next(ctx); errors.Is(err, io.EOF) {
			t.whole.Store(true)
			return 0, io.EOF
		} else if err != nil {
			return 0, err
		}
	}
}

// checkTotal weighs the frames of all packets against what the header claims of the media: of what is to be heard about.duration does.
func (m *mp4File) checkTotal(total int64) error {
	if m.claimed == unknown {
		return nil
	}
	claim, held := durationOf(m.claimed, m.coding.rate), durationOf(total, m.coding.rate)
	if (claim - held).Abs() > slack+durationOf(m.loose, m.coding.rate) {
		return broken("The header claims %.3f s of audio, but the file holds %.3f s.", claim.Seconds(), held.Seconds())
	}
	return nil
}
