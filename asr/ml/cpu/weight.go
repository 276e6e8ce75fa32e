package cpu

import (
	"github.com/aviary-asr/aviary/asr/ml"
)

// panelCols is the number of outputs that a panel holds side by side.
const panelCols = 4

// matrix is an uploaded matrix. A linear's panel p holds, for every input k, the weights of the outputs 4p to 4p+3; outputs past the last
// are zeros. A gated matrix alternates panels of values and panels of gates. A matrix for row lookups is kept as it came.
type matrix struct {
	owner  *Backend
	shape  []int
	spec   ml.MatrixSpec
	bytes  int64
	panels int

	f32  [][4]float32 // [panels][in], or nil
	bf16 [][4]uint16

	rows32 []float32 // [rows, cols] of UseRows, or nil
	rows16 []uint16
}

func (m *matrix) Shape() []int    { return m.shape }
func (m *matrix) DType() ml.DType { return m.spec.DType }
func (m *matrix) Bytes() int64    { return m.bytes }

// Release hands the memory to the garbage collector.
func (m *matrix) Release() {
	m.owner.weights.Add(-m.bytes)
	m.bytes = 0
	m.f32, m.bf16, m.rows32, m.rows16 = nil, nil, nil, nil
}

// outputs is the number of columns that Linear makes of m.
func (m *matrix) outputs() int {
	if m.spec.Use == ml.UseGated {
		return m.spec.Rows / 2
	}
	return m.spec.Rows
}

// Matrix packs and uploads a matrix.
func (b *Backend) Matrix(spec ml.MatrixSpec, data []float32) (ml.Weight, error) {
	ml.CheckMatrix(spec, data)
	m := &matrix{owner: b, shape: []int{spec.Rows, spec.Cols}, spec: spec}
	if spec.Use != ml.UseRows {
		m.panels = ceilDiv(m.outputs(), panelCols)
		if spec.Use == ml.UseGated {
			m.panels *= 2
		}
	}
	m.bytes = b.Info().MatrixBytes(spec)
	if err := b.admit(m.bytes); err != nil {
		return nil, err
	}
	switch {
	case spec.Use == ml.UseRows && spec.DType == ml.Float32:
		m.rows32 = append([]float32(nil), data...)
	case spec.Use == ml.UseRows:
		m.rows16 = make([]uint16, len(data))
		for i, v := range data {
			m.rows16[i] = ml.RoundBFloat16(v)
		}
	case spec.DType == ml.Float32:
		m.f32 = make([][4]float32, m.panels*spec.Cols)
		m.pack(data, func(at, lane int, v float32) { m.f32[at][lane] = v })
	default:
		m.bf16 = make([][4]uint16, m.panels*spec.Cols)
		m.pack(data, func(at, lane int, v float32) { m.bf16[at][lane] = ml.RoundBFloat16(v) })
	}
	b.weights.Add(m.bytes)
	return m, nil
}

// pack visits every weight with its place in the panels.
func (m *matrix) pack(data []float32, set func(at, lane int, v float32)) {
	in := m.spec.Cols
	for o := range m.spec.Rows {
		panel, lane := o/panelCols, o%panelCols
		if m.spec.Use == ml.UseGated {
			half := m.spec.Rows / 2
			panel, lane = o%half/panelCols*2+o/half, o%half%panelCols
		}
		for k, v := range data[o*in : (o+1)*in] {
			set(panel*in+k, lane, v)
		}
	}
}

// panel is the part of panel p that belongs to the inputs from k0 up to k1, widened into buf where it is not float32.
func (m *matrix) panel(p, k0, k1 int, buf [][4]float32) [][4]float32 {
	at := p * m.spec.Cols
	if m.f32 != nil {
		return m.f32[at+k0 : at+k1]
	}
	src := m.bf16[at+k0 : at+k1]
	buf = buf[:len(src)]
	for k := range src {
		s, d := &src[k], &buf[k]
		d[0], d[1] = ml.WidenBFloat16(s[0]), ml.WidenBFloat16(s[1])
		d[2], d[3] = ml.WidenBFloat16(s[2]), ml.WidenBFloat16(s[3])
	}
	return buf
}

// param is an uploaded small parameter.
type param struct {
	owner *Backend
	shape []int
	data  []float32
}

func (p *param) Shape() []int    { return p.shape }
func (p *param) DType() ml.DType { return ml.Float32 }
func (p *param) Bytes() int64    { return 4 * int64(len(p.data)) }

// Release hands the memory to the garbage collector.
func (p *param) Release() {
	p.owner.weights.Add(-p.Bytes())
	p.data = nil
}

// Param uploads a small parameter.
func (b *Backend) Param(shape []int, data []float32) (ml.Weight, error) {
	ml.CheckParam(shape, data)
	p := &param{owner: b, shape: append([]int(nil), shape...), data: append([]float32(nil), data...)}
	if err := b.admit(p.Bytes()); err != nil {
		return nil, err
	}
	b.weights.Add(p.Bytes())
	return p, nil
}

// values of a parameter that may be absent.
func values(w ml.Weight) []float32 {
	if w == nil {
		return nil
	}
	return w.(*param).data
}
