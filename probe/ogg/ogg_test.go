package ogg

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"
)

// pagesOf reads the pages of one stream.
func pagesOf(r *Reader, serial uint32) func() (*Page, error) {
	return func() (*Page, error) {
		for {
			p, err := r.Next()
			if err != nil || p.Serial == serial {
				return p, err
			}
		}
	}
}

// packetsOf reads the packets of a stream, the first page of which is the file's first. It reads each whole, or skips it.
func packetsOf(r io.Reader, serial uint32, skip func(int) bool) (all [][]byte, err error) {
	pages := pagesOf(NewReader(r), serial)
	first, err := pages()
	if err != nil {
		return nil, err
	}
	all = append(all, bytes.Clone(first.Body()))
	packets := NewPackets(first, pages)
	for {
		if err := packets.Next(); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return all, err
		}
		if skip(len(all)) {
			all = append(all, nil)
			continue
		}
		b, err := io.ReadAll(packets)
		if err != nil {
			return all, err
		}
		all = append(all, b)
	}
}

func never(int) bool { return false }

// What the reference library wrote: pages that add up to the file, whose checksums are right.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"opus_48k_stereo.opus", "opus_8k_input_60ms.opus", "oggflac_16k.oga", "vorbis_44k1_stereo.ogg", "ogg_theora_plus_vorbis.ogv"} {
		file, err := os.ReadFile(filepath.Join("..", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		r, at, numbers := NewReader(iotest.HalfReader(bytes.NewReader(file))), int64(0), map[uint32]uint32{}
		for {
			p, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if p.At != at || p.Number != numbers[p.Serial] || p.First != (p.Number == 0) || (p.Packets() == 0) != (p.Granule < 0) {
				t.Errorf("%s: page %+v at %d", name, p, at)
			}
			numbers[p.Serial]++
			at = r.Offset()
		}
		if at != int64(len(file)) {
			t.Errorf("%s: %d bytes in pages, want %d", name, at, len(file))
		}
	}
}

// twoStreams writes packets of all sizes around what lacing treats in its own way, with another stream's pages between theirs.
func twoStreams(most int) (file []byte, packets [][]byte) {
	w, other := pageWriter{serial: 7, most: most}, pageWriter{serial: 9, most: 3}
	random := rand.New(rand.NewPCG(1, 2))
	for i, n := range []int{5, 0, 1, 254, 255, 256, 509, 510, 511, 0, 0, 65025, 65026, 200000, 3} {
		p := make([]byte, n)
		for j := range p {
			p[j] = byte(random.Uint32())
		}
		packets = append(packets, p)
		w.packet(p, int64(i))
		if i == 0 {
			w.flush(2, false)
		}
		w.out = append(w.out, other.out...)
		other.out = nil
		other.packet(p, 1000)
		if i%3 == 0 {
			other.flush(0, true)
		}
	}
	w.flush(4, false)
	return w.out, packets
}

func TestPackets(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 2, 7, 255} {
		file, want := twoStreams(most)
		for name, r := range map[string]io.Reader{"whole": bytes.NewReader(file), "in bits": iotest.HalfReader(bytes.NewReader(file)), "with EOF": iotest.DataErrReader(bytes.NewReader(file))} {
			got, err := packetsOf(r, 7, never)
			if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
				t.Errorf("%d segments a page, %s: %d packets and %v, want %d", most, name, len(got), err, len(want))
			}
		}
		got, err := packetsOf(bytes.NewReader(file), 7, func(i int) bool { return i%2 == 0 })
		for i := range got {
			if err != nil || len(got) != len(want) || i%2 == 1 && !bytes.Equal(got[i], want[i]) {
				t.Fatalf("%d segments a page, every other packet: %d packets and %v", most, len(got), err)
			}
		}
	}
}

// Last, Size and Page tell where a packet ends.
func TestPlaces(t *testing.T) {
	t.Parallel()
	w := pageWriter{serial: 1, most: 3}
	w.packet([]byte("head"), 0)
	w.flush(2, false)
	w.packet(make([]byte, 10), 10)
	w.packet(make([]byte, 600), 20) // ends on the next page
	w.packet(make([]byte, 20), 30)
	w.packet(make([]byte, 30), 40)
	w.flush(4, false)
	r := NewReader(bytes.NewReader(w.out))
	first, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	packets := NewPackets(first, r.Next)
	for _, want := range []struct {
		size, granule int64
		last          bool
	}{{10, 10, true}, {600, 40, false}, {20, 40, false}, {30, 40, true}} {
		err := packets.Next()
		if peek := packets.Peek(); int64(len(peek)) > want.size || len(peek) == 0 {
			t.Errorf("peeks %d bytes of %d", len(peek), want.size)
		}
		if discardErr := packets.Discard(); err != nil || discardErr != nil || packets.Size() != want.size || packets.Page().Granule != want.granule || packets.Last() != want.last {
			t.Errorf("%d bytes at %d, last %v, %v; want %+v", packets.Size(), packets.Page().Granule, packets.Last(), err, want)
		}
	}
	if err := packets.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	if err := packets.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end once more: %v", err)
	}
}

func TestDamageIsNoticed(t *testing.T) {
	t.Parallel()
	file, _ := twoStreams(255)
	ends := map[int]bool{0: true}
	for r := NewReader(bytes.NewReader(file)); ; ends[int(r.Offset())] = true {
		if _, err := r.Next(); err != nil {
			break
		}
	}
	for at := 0; at < len(file); at += 1 + at/40 {
		bad := bytes.Clone(file)
		bad[at] ^= 1 << (at % 8)
		r, err := NewReader(bytes.NewReader(bad)), error(nil)
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNoPage) && !errors.Is(err, ErrCut) {
			t.Fatalf("byte %d changed: %v", at, err)
		}
		if _, err := packetsOf(bytes.NewReader(file[:at]), 7, never); !errors.Is(err, ErrCut) && !ends[at] {
			t.Fatalf("cut at byte %d: %v", at, err)
		}
	}
}

// numbered is a file of pages that each hold the end of one packet and the start of the next.
func numbered(numbers ...uint32) []byte {
	var b []byte
	for i, n := range numbers {
		flags := byte(1)
		if i == 0 {
			flags = 2
		}
		lacing := []byte{1, 255}
		if i == 0 {
			lacing = []byte{255, 1}
		}
		b = append(b, rawPage(flags, 1, 7, n, lacing, make([]byte, 256))...)
	}
	return b
}

func TestLostPages(t *testing.T) {
	t.Parallel()
	page := func(flags byte, number uint32, lacing ...byte) []byte {
		size := 0
		for _, v := range lacing {
			size += int(v)
		}
		return rawPage(flags, 1, 7, number, lacing, make([]byte, size))
	}
	start := page(2, 0, 4)
	for what, c := range map[string]struct {
		pages [][]byte
		want  error
	}{
		"whole":                                {[][]byte{start, page(0, 1, 5), page(4, 2, 5)}, nil},
		"one is missing":                       {[][]byte{start, page(0, 1, 5), page(4, 3, 5)}, ErrLost},
		"one stands twice":                     {[][]byte{start, page(0, 1, 5), page(4, 1, 5)}, ErrLost},
		"a start is missing":                   {[][]byte{start, page(0, 1, 5), page(1, 2, 5)}, ErrLost},
		"an end is missing":                    {[][]byte{start, page(0, 1, 255), page(0, 2, 5)}, ErrLost},
		"the end within a packet":              {[][]byte{start, page(0, 1, 255)}, ErrCut},
		"nothing on a page":                    {[][]byte{start, page(0, 1), page(4, 2)}, nil},
		"nothing on a page within a packet":    {[][]byte{start, page(0, 1, 255), page(1, 2), page(1, 3, 1)}, nil},
		"a page that claims to go on, in vain": {[][]byte{start, page(1, 1)}, ErrLost},
	} {
		if _, err := packetsOf(bytes.NewReader(slices.Concat(c.pages...)), 7, never); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
}

// A live stream that was joined: the headers, and then a page of any number that starts within a packet.
func TestLoosen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pages [][]byte
		sizes []int64
		want  error
	}{
		{[][]byte{rawPage(1, 1, 7, 900, []byte{3, 6}, make([]byte, 9)), rawPage(4, 1, 7, 901, []byte{8}, make([]byte, 8))}, []int64{6, 8}, io.EOF},
		{[][]byte{rawPage(0, 1, 7, 900, []byte{3, 6}, make([]byte, 9)), rawPage(4, 1, 7, 902, []byte{8}, make([]byte, 8))}, []int64{3, 6}, ErrLost},
		{[][]byte{rawPage(1, -1, 7, 900, []byte{255}, make([]byte, 255)), rawPage(5, 1, 7, 901, []byte{8, 9}, make([]byte, 17))}, []int64{9}, io.EOF},
	} {
		r := NewReader(bytes.NewReader(slices.Concat(append([][]byte{rawPage(2, 0, 7, 0, []byte{4}, make([]byte, 4))}, c.pages...)...)))
		first, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		packets, sizes := NewPackets(first, r.Next), []int64(nil)
		packets.Loosen()
		for err = packets.Next(); err == nil; err = packets.Next() {
			if err := packets.Discard(); err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, packets.Size())
		}
		if !errors.Is(err, c.want) || !slices.Equal(sizes, c.sizes) {
			t.Errorf("packets of %v bytes and %v; want %v and %v", sizes, err, c.sizes, c.want)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	page := rawPage(2, 0, 7, 0, []byte{4}, make([]byte, 4))
	for _, junk := range []int{1, 4, 100, bufferBytes - 40, bufferBytes - 3, bufferBytes, 3*bufferBytes + 5} {
		file := slices.Concat(page, bytes.Repeat([]byte{'O'}, junk), page)
		r := NewReader(bytes.NewReader(file))
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		_, err := r.Next()
		if found, findErr := r.Find(); !errors.Is(err, ErrNoPage) || !found || findErr != nil || r.Offset() != int64(len(page)+junk) {
			t.Errorf("%d bytes of junk: %v; found %v at %d, %v", junk, err, found, r.Offset(), findErr)
		}
		if _, err := r.Next(); err != nil {
			t.Errorf("%d bytes of junk: %v", junk, err)
		}
		r = NewReader(bytes.NewReader(file[:len(file)-len(page)]))
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if found, err := r.Find(); found || err != nil {
			t.Errorf("%d bytes of junk and no page: found one, %v", junk, err)
		}
	}
}

func TestErrorsOfTheReader(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	file, _ := twoStreams(255)
	for good := range len(file) / 5000 {
		r := io.MultiReader(bytes.NewReader(file[:5000*good]), iotest.ErrReader(broken))
		if _, err := packetsOf(r, 7, never); !errors.Is(err, broken) {
			t.Fatalf("fails after %d bytes: %v", 5000*good, err)
		}
	}
}

// FuzzPackets reads any bytes in two ways, which must give the same, in bounded memory.
func FuzzPackets(f *testing.F) {
	small := pageWriter{serial: 7, most: 2}
	small.packet([]byte("head"), 0)
	small.flush(2, false)
	small.packet(make([]byte, 700), 0)
	small.flush(4, false)
	f.Add(small.out)
	f.Add(numbered(0, 1, 2))
	f.Fuzz(func(t *testing.T, file []byte) {
		file = repaired(file)
		read := func(skip bool) (sizes []int64, err error) {
			r := NewReader(bytes.NewReader(file))
			first, err := r.Next()
			if err != nil {
				return nil, err
			}
			packets := NewPackets(first, pagesOf(r, first.Serial))
			for {
				if err := packets.Next(); err != nil {
					return sizes, err
				}
				if !skip {
					if n, err := io.Copy(io.Discard, packets); err != nil {
						return sizes, err
					} else if n != packets.Size() {
						t.Fatalf("read %d bytes of %d", n, packets.Size())
					}
				}
				if err := packets.Discard(); err != nil {
					return sizes, err
				}
				sizes = append(sizes, packets.Size())
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		skipped, err := read(true)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 256<<10+uint64(16*len(file)) {
			t.Fatalf("%d bytes allocated for %d", n, len(file))
		}
		got, readErr := read(false)
		if !slices.Equal(got, skipped) || err.Error() != readErr.Error() {
			t.Fatalf("packets of %v and %v bytes, %v and %v", got, skipped, err, readErr)
		}
	})
}

// repaired makes the checksums of all pages right, so that what lies behind them is tested.
func repaired(file []byte) []byte {
	file = bytes.Clone(file)
	for at := 0; at+headerBytes <= len(file); {
		size := headerBytes + int(file[at+26])
		for i := at + headerBytes; i < min(at+headerBytes+int(file[at+26]), len(file)); i++ {
			size += int(file[i])
		}
		if size > len(file)-at {
			break
		}
		sum := slowChecksum(file[at : at+size])
		file[at+22], file[at+23], file[at+24], file[at+25] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		at += size
	}
	return file
}
