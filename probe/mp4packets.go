package probe

import (
	"context"
	"errors"
	"io"

	"github.com/aviary-asr/aviary/probe/mp4"
)

// mp4Packets gives the samples of a track as packets. Where all packets have as many frames, counting takes a whole run of them as one.
type mp4Packets struct {
	file     *mp4File
	coding   mp4Coding
	counting bool
	started  bool
	runs     *mp4.Runs
	run      mp4.Run   // what is left of it
	behind   []mp4.Run // what comes before the next of runs, in reverse
	samples  int64     // given so far, of all
	data     *mp4.Window
	read     int64 // bytes of packets that were looked at
	count    func(packet mp4Sample) (int64, error)
	total    int64  // frames given or discarded
	ended    func() // called once there are no more
}

// mp4Sample is the place of a packet.
type mp4Sample struct {
	packets   *mp4Packets
	at, bytes int64
	ticks     int64
	last      bool // of the sample tables
}

const (
	mp4DataWindowBytes = 32 << 10
	pcmPacketBytes     = 16 << 10
)

func newMP4Packets(m *mp4File, counting bool) *mp4Packets {
	p := &mp4Packets{
		file: m, coding: m.coding, counting: counting, runs: m.track.Runs(m.coding.frameBytes), ended: func() {},
		data: mp4.NewWindow(m.source, m.size, mp4DataWindowBytes),
	}
	if m.coding.counter != nil {
		p.count = m.coding.counter()
	}
	return p
}

// next implements packetReader.
func (p *mp4Packets) next(ctx context.Context) (packet, error) {
	if !p.started {
		p.started = true
		if _, err := p.discard(ctx, p.file.drop); err != nil {
			return packet{}, err
		}
	}
	if err := p.fill(ctx); err != nil {
		return packet{}, err
	}
	var c packet
	var err error
	switch frames := p.evenFrames(); {
	case p.coding.frameBytes > 0:
		c, err = p.pcm()
	case frames > 0 && p.counting:
		c = packet{frames: frames * p.run.Count}
		p.advance(p.run.Count)
	default:
		c, err = p.one()
	}
	p.total += c.frames
	return c, err
}

// fill makes sure that the run is not empty.
func (p *mp4Packets) fill(ctx context.Context) error {
	if p.run.Count > 0 {
		return nil
	}
	if last := len(p.behind) - 1; last >= 0 {
		p.run, p.behind = p.behind[last], p.behind[:last]
		return nil
	}
	run, err := p.runs.Next(ctx)
	if errors.Is(err, io.EOF) {
		if err := p.file.checkTotal(p.total); err != nil {
			return err
		}
		p.ended()
		return io.EOF
	}
	if err != nil {
		return mp4Error(err)
	}
	if run.Bytes > p.coding.mostBytes && p.coding.frameBytes == 0 {
		return broken("A packet of %s at byte %d claims %d bytes, more than any has.", p.coding.codec.title, run.At, run.Bytes)
	}
	if frame := p.coding.frameBytes; frame > 0 && run.Bytes%frame != 0 {
		return broken("The samples at byte %d have %d bytes each, which are no whole frames of %d.", run.At, run.Bytes, frame)
	}
	p.run = run
	return nil
}

func (p *mp4Packets) advance(samples int64) {
	p.run.At += samples * p.run.Bytes
	p.run.Count -= samples
	p.samples += samples
}

// evenFrames is how many frames each sample of the run has, where that follows from its size or the codec; otherwise 0.
func (p *mp4Packets) evenFrames() int64 {
	if frame := p.coding.frameBytes; frame > 0 {
		return p.run.Bytes / frame
	}
	return p.coding.frames
}

// sample is the place of the next sample.
func (p *mp4Packets) sample() mp4Sample {
	return mp4Sample{packets: p, at: p.run.At, bytes: p.run.Bytes, ticks: p.run.Ticks,
		last: p.samples+1 == p.file.track.Samples && !p.file.file.Fragmented}
}

// head is the first n bytes of the sample.
func (s mp4Sample) head(n int) ([]byte, error) {
	return s.packets.data.Bytes(s.at, int(min(int64(n), s.bytes)))
}

// all is the bytes of the sample.
func (s mp4Sample) all() ([]byte, error) { return s.head(int(s.bytes)) }

// one gives one sample.
func (p *mp4Packets) one() (c packet, err error) {
	if p.coding.unit != nil && !p.counting {
		if err := p.split(); err != nil {
			return packet{}, err
		}
	}
	s := p.sample()
	if c.frames, err = p.look(s); err != nil {
		return packet{}, err
	}
	if !p.counting {
		if c.data, err = s.all(); err != nil {
			return packet{}, err
		}
	}
	p.advance(1)
	return c, nil
}

// split makes the next sample only as long as its first frame, and what is behind that a sample of its own.
func (p *mp4Packets) split() error {
	b, err := p.sample().head(1)
	if err != nil {
		return err
	}
	first, rest := p.run, p.run
	first.Count, first.Bytes = 1, min(p.coding.unit(b), p.run.Bytes)
	p.advance(1)
	if p.run.Count > 0 {
		p.behind = append(p.behind, p.run)
	}
	if rest.Bytes -= first.Bytes; rest.Bytes > 0 {
		rest.At, rest.Count = rest.At+first.Bytes, 1
		p.behind = append(p.behind, rest)
	}
	p.run = first
	return nil
}

// look counts the frames of a sample. Those that take looking into it may not overlap: a small file could have billions.
func (p *mp4Packets) look(s mp4Sample) (int64, error) {
	if p.count == nil {
		return p.coding.frames, nil
	}
	if p.read += s.bytes; p.read > p.file.size {
		return 0, broken("The packets of the audio track overlap.")
	}
	return p.count(s)
}

// pcm gives as many whole frames of the run as a packet holds. They may be part of a sample.
func (p *mp4Packets) pcm() (packet, error) {
	frame := p.coding.frameBytes
	if p.counting {
		frames := p.run.Count * p.run.Bytes / frame
		p.advance(p.run.Count)
		return packet{frames: frames}, nil
	}
	left := p.run.Count * p.run.Bytes
	n := min(left, max(pcmPacketBytes/frame, 1)*frame)
	data, err := p.data.Bytes(p.run.At, int(n))
	if err != nil {
		return packet{}, err
	}
	p.run = mp4.Run{At: p.run.At + n, Count: (left - n) / frame, Bytes: frame}
	return packet{data: data, frames: n / frame}, nil
}

// discard skips packets at the start, as many as have no more than so many frames in all.
func (p *mp4Packets) discard(ctx context.Context, frames int64) (discarded int64, err error) {
	p.started = true
	for frames > 0 {
		if err := p.fill(ctx); errors.Is(err, io.EOF) {
			break // the edit list starts behind the end
		} else if err != nil {
			return 0, err
		}
		each, n := p.evenFrames(), p.run.Count
		if each > 0 {
			n = min(n, (frames-discarded)/each)
		} else if each, err = p.look(p.sample()); err != nil {
			return 0, err
		} else if n = 1; discarded+each > frames {
			p.read -= p.run.Bytes // it will be looked at again
			n = 0
		}
		if n == 0 {
			break
		}
		discarded += n * each
		p.total += n * each
		p.advance(n)
	}
	return discarded, nil
}
