package vorbis

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	jfreymuth "github.com/jfreymuth/vorbis"

	"github.com/aviary-asr/aviary/probe/ogg"
)

// packetsOf reads the Vorbis packets of an Ogg file.
func packetsOf(t testing.TB, name string) [][]byte {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	pages := ogg.NewReader(bytes.NewReader(file))
	first, err := pages.Next()
	if err != nil {
		t.Fatal(err)
	}
	all := [][]byte{bytes.Clone(first.Body())}
	packets := ogg.NewPackets(first, pages.Next)
	for {
		if err = packets.Next(); errors.Is(err, io.EOF) {
			return all
		}
		b, readErr := io.ReadAll(packets)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		all = append(all, b)
	}
}

var realFiles = []string{"vorbis_8k_mono.ogg", "vorbis_22050_mono.ogg", "vorbis_44k1_stereo.ogg", "golden/vorbis_managed.ogg"}

// Another decoder in Go, which was written from the same specification, gives the same samples of what encoders write.
func TestAgainstJfreymuth(t *testing.T) {
	t.Parallel()
	for _, name := range realFiles {
		packets := packetsOf(t, name)
		d, err := NewDecoder(packets[0], packets[2])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var other jfreymuth.Decoder
		for _, p := range packets[:3] {
			if err := other.ReadHeader(p); err != nil {
				t.Fatal(err)
			}
		}
		var got, want []float32
		previous, info := 0, d.Info()
		for i, p := range packets[3:] {
			before := len(got)
			if got, err = d.Decode(got, p); err != nil {
				t.Fatalf("%s: packet %d: %v", name, i, err)
			}
			n, err := info.Block(p)
			if frames := (previous/4 + n/4) * min(previous, 1); err != nil || len(got)-before != frames*info.Channels {
				t.Errorf("%s: packet %d has %d samples; Block says %d, %v", name, i, len(got)-before, n, err)
			}
			previous = n
			samples, err := other.Decode(p)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, samples...)
		}
		if ratio := noise(got, want); len(got) != len(want) || ratio > -120 {
			t.Errorf("%s: %d samples, want %d; they differ by %.1f dB", name, len(got), len(want), ratio)
		}
	}
}

// noise is the power of a-b against that of b, in dB.
func noise(a, b []float32) float64 {
	var signal, rest float64
	for i := range min(len(a), len(b)) {
		d := float64(a[i]) - float64(b[i])
		signal += float64(b[i]) * float64(b[i])
		rest += d * d
	}
	return 10 * math.Log10((rest+1e-30)/(signal+1e-30))
}

func TestTransform(t *testing.T) {
	t.Parallel()
	for _, n := range []int{64, 128, 256, 2048} {
		x, got, want := make([]float32, n/2), make([]float32, n), make([]float32, n)
		for k := range x {
			x[k] = float32(math.Sin(float64(k*k) + 0.3))
		}
		newMDCT(n).inverse(got, x)
		for i := range want {
			sum := 0.0
			for k, v := range x {
				sum += float64(v) * math.Cos(2*math.Pi/float64(n)*(float64(i)+0.5+float64(n)/4)*(float64(k)+0.5))
			}
			want[i] = float32(sum)
		}
		if ratio := noise(got, want); ratio > -125 {
			t.Errorf("size %d: differs by %.1f dB from the definition", n, ratio)
		}
	}
}

// Vectors of all residue types, with channels that are coupled, as the specification's pseudocode gives them.
func TestResidues(t *testing.T) {
	t.Parallel()
	flat := decibels[254] // the floor: height 127 of 128, doubled
	for kind := range 3 {
		d, err := NewDecoder(identification(2, 8000, 6, 7), simpleSetup(2, kind, 1))
		if err != nil {
			t.Fatal(err)
		}
		w := &bitWriter{}
		w.put(0, 1).put(0, 2)               // audio, slopes of short blocks
		w.put(1, 1).put(127, 7).put(127, 7) // a floor at its highest
		w.put(1, 1).put(127, 7).put(127, 7) // for both
		want := [2][64]float32{}            // magnitude and angle
		value := func(n int) float32 { return float32([4]int{-1, 0, 1, 2}[n]) }
		partitions, vectors := 16, 2
		if kind == 2 {
			vectors = 1
		}
		for p := range partitions {
			for range vectors {
				w.put(1, 1) // class 1 has a book
			}
			for v := range vectors {
				for i := range 4 {
					code := (p + i + v) % 4
					w.put([4]int{0, 2, 1, 3}[code], 2) // codewords start with their highest bit
					switch at := 4*p + i; kind {
					case 2:
						want[at%2][at/2] = value(code)
					default:
						want[v][at] = value(code)
					}
				}
			}
		}
		d.spectra(advanced(w.b, 3), &d.setup.mappings[0], 64)
		for i := range want[0] {
			m, a := uncoupled(want[0][i], want[1][i])
			if got := [2]float32{d.channels[0].spectrum[i], d.channels[1].spectrum[i]}; math.Abs(float64(got[0]-m*flat)) > 1e-6 || math.Abs(float64(got[1]-a*flat)) > 1e-6 {
				t.Fatalf("residue %d: frequency %d is %v, want %v and %v", kind, i, got, m*flat, a*flat)
			}
		}
	}
}

func advanced(b []byte, bits int) *bitReader { return &bitReader{b: b, pos: bits} }

// uncoupled is section 4.3.5 word by word.
func uncoupled(m, a float32) (float32, float32) {
	if m > 0 {
		if a > 0 {
			return m, m - a
		}
		return m + a, m
	}
	if a > 0 {
		return m, m + a
	}
	return m - a, m
}

// A floor of type 0 against the formula of section 6.2.3.
func TestFloor0(t *testing.T) {
	t.Parallel()
	for order := 1; order <= 7; order++ {
		f := floor0{order: order, rate: 16000, bark: 64, amplitudeBits: 6, offset: 100}
		c := curve{amplitude: 0.75}
		var raw []float64
		for i := range order {
			raw = append(raw, 0.3+0.37*float64(i))
		}
		c.coefficients = slices.Clone(raw)
		spectrum := []float32{}
		for range 128 {
			spectrum = append(spectrum, 1)
		}
		f.apply(spectrum, &c)
		for i, got := range spectrum {
			position := math.Floor(bark(16000*float64(i)/(2*128)) * 64 / bark(8000))
			w := math.Cos(math.Pi * math.Min(position, 63) / 64)
			p, q := 1.0, 1.0
			for j, x := range raw {
				factor := 4 * (math.Cos(x) - w) * (math.Cos(x) - w)
				if j%2 == 1 {
					p *= factor
				} else {
					q *= factor
				}
			}
			if order%2 == 1 {
				p, q = p*(1-w*w), q/4
			} else {
				p, q = p*(1-w)/2, q*(1+w)/2
			}
			want := math.Exp(0.11512925 * (0.75*100/math.Sqrt(p+q) - 100))
			if want < 1e30 && math.Abs(float64(got)-want) > 1e-5*want { // few filters are that sharp
				t.Fatalf("order %d, frequency %d: %g, want %g", order, i, got, want)
			}
		}
	}
}

func TestCodebooks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		lengths []int
		good    bool
		words   map[int]string // first bit first
	}{
		{"the specification's example", []int{2, 4, 4, 4, 4, 2, 3, 3}, true, map[int]string{
			0: "00", 1: "0100", 2: "0101", 3: "0110", 4: "0111", 5: "10", 6: "110", 7: "111",
		}},
		{"unused entries", []int{0, 1, 0, 1}, true, map[int]string{1: "0", 3: "1"}},
		{"more bits than the table", []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11}, true, map[int]string{
			0: "0", 7: "11111110", 8: "111111110", 10: "11111111110", 11: "11111111111",
		}},
		{"one entry", []int{0, 1}, true, map[int]string{1: "0"}},
		{"one entry of two bits", []int{2}, false, nil},
		{"too few", []int{1, 2}, false, nil},
		{"too many", []int{1, 1, 1}, false, nil},
		{"too many later", []int{2, 1, 2, 2}, false, nil},
	} {
		w := (&bitWriter{}).codebook(1, c.lengths...).noLookup()
		p := setupParser{bits: &bitReader{b: w.b}, build: true}
		book, err := p.codebook()
		if (err == nil) != c.good {
			t.Errorf("%s: %v", c.what, err)
		}
		for entry, word := range c.words {
			bits := &bitWriter{}
			for _, bit := range word {
				bits.put(int(bit-'0'), 1)
			}
			r := &bitReader{b: append(bits.b, 0x55, 0xAA)}
			if got := book.scalar(r); got != entry || r.pos != len(word) {
				t.Errorf("%s: %s is entry %d in %d bits, want %d", c.what, word, got, r.pos, entry)
			}
		}
	}
	empty := (&bitWriter{}).codebook(1, 0, 0).noLookup()
	p := setupParser{bits: &bitReader{b: empty.b}, build: true}
	book, err := p.codebook()
	if r := (&bitReader{b: []byte{1}}); err != nil || book.scalar(r) >= 0 || !r.ended {
		t.Errorf("a codebook without entries: %v", err)
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ entries, power, want int }{{1, 1, 1}, {8, 3, 2}, {7, 3, 1}, {6561, 8, 3}, {6560, 8, 2}, {1 << 17, 1, 1 << 17}, {81, 2, 9}, {5, 65535, 1}} {
		if got := root(c.entries, c.power); got != c.want {
			t.Errorf("root %d of %d is %d, want %d", c.power, c.entries, got, c.want)
		}
	}
}

// A packet may end anywhere: what is missing is silence, not noise (section 4.3.3).
func TestCutPackets(t *testing.T) {
	t.Parallel()
	for _, name := range realFiles {
		packets := packetsOf(t, name)
		whole, _ := NewDecoder(packets[0], packets[2])
		for n := range 40 {
			cut, _ := NewDecoder(packets[0], packets[2])
			var a, b []float32
			for _, p := range packets[3:12] {
				a, _ = whole.Decode(a, p)
				var err error
				if b, err = cut.Decode(b, p[:max(1, len(p)*n/40)]); err != nil {
					t.Fatal(err)
				}
			}
			whole.Reset()
			if len(a) != len(b) || energy(b) > 2*energy(a)+1e-9 {
				t.Errorf("%s: %d/40 of each packet gives %d samples of energy %g, the whole %d of %g", name, n, len(b), energy(b), len(a), energy(a))
			}
		}
	}
}

func energy(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func TestHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	setup := simpleSetup(2, 1, 0, 1)
	if _, err := ParseInfo(identification(2, 8000, 6, 7), setup); err != nil {
		t.Fatal(err)
	}
	for what, id := range map[string][]byte{
		"0 channels": identification(0, 8000, 6, 7), "rate 0": identification(2, 0, 6, 7), "blocks of 32": identification(2, 8000, 5, 7),
		"blocks of 16384": identification(2, 8000, 6, 14), "short blocks longer": identification(2, 8000, 8, 7),
		"a cut header": identification(2, 8000, 6, 7)[:29], "one channel coupled with the next": identification(1, 8000, 6, 7),
	} {
		if _, err := ParseInfo(id, setup); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range setup {
		if _, err := ParseInfo(identification(2, 8000, 6, 7), setup[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("a setup header of %d bytes instead of %d: %v", n, len(setup), err)
		}
	}
}

// Claims cost nothing: 2^24 entries in a dozen bytes, 65,535 dimensions, and 256 codebooks of each.
func TestHugeCodebooks(t *testing.T) {
	for what, one := range map[string]func(w *bitWriter){
		"2^24-1 entries": func(w *bitWriter) {
			w.put(0x564342, 24).put(1, 16).put(1<<24-1, 24).put(1, 1).put(23, 5).put(1<<23, 24)
		},
		"many entries": func(w *bitWriter) {
			w.put(0x564342, 24).put(1, 16).put(1<<16, 24).put(1, 1).put(15, 5).put(1<<16, 17).put(0, 4)
		},
		"many dimensions": func(w *bitWriter) {
			w.put(0x564342, 24).put(65535, 16).put(1<<10, 24).put(1, 1).put(9, 5).put(1<<10, 11).put(1, 4)
		},
	} {
		w := &bitWriter{b: []byte("\x05vorbis"), n: 7 * 8}
		w.put(255, 8)
		for range 256 {
			one(w)
		}
		var err error
		n := allocates(func() { _, err = NewDecoder(identification(1, 8000, 6, 7), w.b) })
		if !errors.Is(err, ErrTooLarge) || n > 64<<10 {
			t.Errorf("%s: %v, %d bytes allocated", what, err, n)
		}
	}
}

func allocates(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// FuzzDecoder holds the package to its promises for any headers and packets.
func FuzzDecoder(f *testing.F) {
	for _, name := range realFiles {
		p := packetsOf(f, name)
		f.Add(p[0], p[2], p[3], p[5])
	}
	for kind := range 3 {
		f.Add(identification(2, 8000, 6, 7), simpleSetup(2, kind, 0, 1), []byte{0xFE, 0xFF, 0xAA, 0x12, 0x55}, []byte{0xFC, 0x7F, 0x33, 0x12, 0x55})
	}
	f.Fuzz(func(t *testing.T, identification, setup, first, second []byte) {
		info, err := ParseInfo(identification, setup)
		if err != nil || info.Channels > 8 {
			return
		}
		var d *Decoder
		if n := allocates(func() { d, err = NewDecoder(identification, setup) }); err != nil || n > 8<<20 {
			t.Fatalf("NewDecoder: %v, %d bytes allocated", err, n)
		}
		previous := 0
		for _, p := range [][]byte{first, second, first} {
			n, err := info.Block(p)
			samples, decodeErr := d.Decode(nil, p)
			if (err == nil) != (decodeErr == nil) {
				t.Fatalf("Block: %v, Decode: %v", err, decodeErr)
			}
			if err != nil {
				continue
			}
			if want := (previous/4 + n/4) * min(previous, 1) * info.Channels; len(samples) != want {
				t.Fatalf("%d samples, want %d", len(samples), want)
			}
			previous = n
		}
	})
}
