package mltest

import (
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
)

func testDepthwiseConv(t *testing.T, s *suite) {
	for _, sh := range []struct{ rows, cols, taps int }{
		{1, 3, 9}, {2, 5, 9}, {4, 8, 9}, {19, 32, 9}, {100, 17, 9}, {33, 6, 31}, {5, 4, 1}, {40, 3, 5}, {0, 4, 9},
	} {
		for _, a := range []ml.Activation{ml.None, ml.ReLU, ml.SiLU} {
			x, w, b := s.values(sh.rows*sh.cols, 1), s.values(sh.taps*sh.cols, 0.5), s.values(sh.cols, 0.5)
			f := ml.Filter{W: s.param(t, w, sh.taps, sh.cols), B: s.param(t, b, sh.cols)}
			dst := s.empty(t, sh.rows, sh.cols)
			must(t, s.DepthwiseConv(t.Context(), dst, s.tensor(t, sh.rows, sh.cols, x), f, a))
			s.compare(t, label("%+v activation %d", sh, a), ml.Float32, s.read(t, dst),
				refDepthwiseConv(x, w, b, sh.rows, sh.cols, sh.taps, a))
		}
	}
}

// geometries: whole inputs of even and odd size, and slices that start anywhere.
var geometries = []ml.Conv2D{
	{InRows: 1, InWidth: 1, OutRows: 1},
	{InRows: 2, InWidth: 2, OutRows: 1},
	{InRows: 7, InWidth: 5, OutRows: 4},
	{InRows: 8, InWidth: 16, OutRows: 4},
	{InRows: 33, InWidth: 10, OutRows: 17},
	{InRows: 9, InWidth: 4, OutRows: 4, Offset: 1},
	{InRows: 5, InWidth: 3, OutRows: 6, Offset: -4},
	{InRows: 4, InWidth: 8, OutRows: 3, Offset: 2},
	{InRows: 0, InWidth: 4, OutRows: 2},
}

func testConvStem(t *testing.T, s *suite) {
	for _, g := range geometries {
		for _, channels := range []int{1, 8, 13} {
			s.conv2D(t, g, 1, channels, ml.ReLU)
		}
	}
}

func testConvDepthwise2D(t *testing.T, s *suite) {
	for _, g := range geometries {
		for _, channels := range []int{1, 8, 13} {
			s.conv2D(t, g, channels, channels, ml.None)
		}
	}
}

func (s *suite) conv2D(t *testing.T, g ml.Conv2D, from, channels int, a ml.Activation) {
	t.Helper()
	x, w, b := s.values(g.InRows*g.InWidth*from, 1), s.values(9*channels, 0.5), s.values(channels, 0.5)
	f := ml.Filter{W: s.param(t, w, 9, channels), B: s.param(t, b, channels)}
	dst := s.empty(t, g.OutRows*g.OutWidth(), channels)
	if a == ml.ReLU {
		must(t, s.ConvStem(t.Context(), dst, s.tensor(t, g.InRows, g.InWidth, x), f, g))
	} else {
		must(t, s.ConvDepthwise2D(t.Context(), dst, s.tensor(t, g.InRows*g.InWidth, channels, x), f, g))
	}
	s.compare(t, label("%+v channels %d", g, channels), ml.Float32, s.read(t, dst), refConv2D(x, w, b, g, from, channels, a))
}

// testConvSlices cuts an input in two, with the overlap that the kernel needs, and gets the rows of the whole.
func testConvSlices(t *testing.T, s *suite) {
	const rows, width, channels, cut = 23, 6, 5, 7 // output rows 0 to 6, and 7 to 11
	whole := ml.Conv2D{InRows: rows, InWidth: width, OutRows: (rows-1)/2 + 1}
	x, w, b := s.values(rows*width*channels, 1), s.values(9*channels, 0.5), s.values(channels, 0.5)
	f := ml.Filter{W: s.param(t, w, 9, channels), B: s.param(t, b, channels)}
	src := s.tensor(t, rows*width, channels, x)
	dst := s.empty(t, whole.OutRows*whole.OutWidth(), channels)
	for _, part := range []struct{ first, last int }{{0, cut}, {cut, whole.OutRows}} {
		in0, in1 := max(0, 2*part.first-1), min(rows, 2*part.last)
		g := ml.Conv2D{InRows: in1 - in0, InWidth: width, OutRows: part.last - part.first, Offset: 2*part.first - in0}
		must(t, s.ConvDepthwise2D(t.Context(), dst.RowRange(part.first*g.OutWidth(), part.last*g.OutWidth()),
			src.RowRange(in0*width, in1*width), f, g))
	}
	s.compare(t, "slices", ml.Float32, s.read(t, dst), refConv2D(x, w, b, whole, channels, channels, ml.None))
}
