package cpu

import (
	"context"
	"math"

	"github.com/aviary-asr/aviary/asr/ml"
)

// attentionTask computes one head for a tile of queries per block, with an online softmax over tiles of keys: the running maximum and
// sum of each query are kept, and what has been added up is rescaled when the maximum rises.
type attentionTask struct {
	dst, q, k, v, r mat
	u, vBias        []float32 // [heads][width]
	minOffset       int
	left, right     int // both set; n where unbounded
	width           int // of a head
	tiles           int
	scale           float32
}

// Attention computes relative-position attention.
func (b *Backend) Attention(ctx context.Context, dst ml.Tensor, a ml.RelAttention) error {
	ml.CheckAttention(dst, a)
	n := a.Q.Rows
	lo, hi := a.Offsets(n)
	t := &b.attention
	*t = attentionTask{
		dst: view(dst), q: view(a.Q), k: view(a.K), v: view(a.V), r: view(a.R),
		u: values(a.U), vBias: values(a.V0), minOffset: a.MinOffset,
		left: hi, right: -lo, width: a.Q.Cols / a.Heads, tiles: ceilDiv(n, queryRows),
	}
	t.scale = float32(1 / math.Sqrt(float64(t.width)))
	if t.width > headWidth && queryRows*t.width > len(b.pool.workers[0].qu) {
		for _, w := range b.pool.workers {
			b.scratch += 4 * 3 * int64(queryRows*t.width-len(w.qu))
			w.widen(t.width)
		}
	}
	return b.pool.run(ctx, t, a.Heads*t.tiles, 3*n*min(n, t.left+t.right+1)*a.Q.Cols)
}

// cols is one head's part of m.
func (m mat) head(h, width int) mat {
	if m.rows > 0 {
		m.data = m.data[h*width:]
	}
	m.cols = width
	return m
}

func (t *attentionTask) block(j *job, w *worker, i int) {
	h, a := i/t.tiles, i%t.tiles*queryRows
	b := min(a+queryRows, t.q.rows)
	n := t.q.rows
	k, v, r := t.k.head(h, t.width), t.v.head(h, t.width), t.r.head(h, t.width)
	t.load(w, h, a, b)
	first, last := max(0, a-t.left), min(n, b+t.right) // keys of the tile
	for j0 := first; j0 < last; j0 += keyRows {
		if j.stopped() {
			return
		}
		j1 := min(j0+keyRows, last)
		for q := a; q < b; q += 2 {
			t.pair(w, q, q-a, min(q+1, b-1)-a, j0, j1, k, v, r)
		}
	}
	dst := t.dst.head(h, t.width)
	for q := a; q < b; q++ {
		inv := float32(1 / w.sum[q-a])
		out, row := w.out[(q-a)*t.width:], dst.row(q)
		for c := range row {
			row[c] = out[c] * inv
		}
	}
}

// load brings a tile of queries into the worker's scratch, with both biases and the scale, and clears the sums.
func (t *attentionTask) load(w *worker, h, a, b int) {
	q := t.q.head(h, t.width)
	u, v := t.u[h*t.width:(h+1)*t.width], t.vBias[h*t.width:(h+1)*t.width]
	for i := a; i < b; i++ {
		row, at := q.row(i), (i-a)*t.width
		qu, qv := w.qu[at:at+t.width], w.qv[at:at+t.width]
		for c, x := range row {
			qu[c] = (x + u[c]) * t.scale
			qv[c] = (x + v[c]) * t.scale
		}
		w.peak[i-a], w.sum[i-a] = float32(math.Inf(-1)), 0
	}
	clear(w.out[:(b-a)*t.width])
}

// pair adds the keys j0 to j1 to query i and its successor, which lie at s0 and s1 in the scratch. An odd last query
// has no successor: then s1 is s0, and the second half of the work is thrown away.
func (t *attentionTask) pair(w *worker, i, s0, s1, j0, j1 int, k, v, r mat) {
	// The keys of both queries; the second one's window lies one key further on.
	lo, hi := max(j0, i-t.left), min(j1, i+1+t.right+1)
	if s1 == s0 {
		hi = min(hi, i+t.right+1)
	}
	if lo >= hi {
		return
	}
	width := t.width
	sc0, sc1 := w.scores[0][:hi-lo], w.scores[1][:hi-lo]
	dotRows(sc0, sc1, w.qu[s0*width:(s0+1)*width], w.qu[s1*width:(s1+1)*width], k, lo)
	// Offsets of both: from i-(hi-1) to i+1-lo, as far as the window and R go.
	from := max(i-(hi-1), -t.right)
	to := min(i+1-lo, t.left)
	p0, p1 := w.positions[0][:to-from+1], w.positions[1][:to-from+1]
	dotRows(p0, p1, w.qv[s0*width:(s0+1)*width], w.qv[s1*width:(s1+1)*width], r, from-t.minOffset)

	own0, end0 := max(lo, i-t.left), min(hi, i+t.right+1)
	addReversed(sc0[own0-lo:end0-lo], p0, i-own0-from)
	weigh(sc0, own0-lo, end0-lo, &w.peak[s0], &w.sum[s0], w.out[s0*width:(s0+1)*width])
	if s1 == s0 {
		add1(w.out[s0*width:(s0+1)*width], sc0, v, lo)
		return
	}
	own1, end1 := max(lo, i+1-t.left), hi
	addReversed(sc1[own1-lo:end1-lo], p1, i+1-own1-from)
	weigh(sc1, own1-lo, end1-lo, &w.peak[s1], &w.sum[s1], w.out[s1*width:(s1+1)*width])
	addRows(w.out[s0*width:(s0+1)*width], w.out[s1*width:(s1+1)*width], sc0, sc1, v, lo)
}

// addReversed adds p[at], p[at-1], ... to s: the offset falls as the key advances.
func addReversed(s, p []float32, at int) {
	for j := range s {
		s[j] += p[at-j]
	}
}

// weigh turns the scores from lo up to hi into weights relative to the running maximum, and all others into zeros.
// When the maximum rises, what has been summed so far is scaled down.
func weigh(s []float32, lo, hi int, peak *float32, sum *float64, out []float32) {
	clear(s[:lo])
	clear(s[hi:])
	own := s[lo:hi]
	top := *peak
	for _, x := range own {
		top = max(top, x)
	}
	if top > *peak {
		if *sum > 0 {
			shrink := exp(*peak - top)
			*sum *= float64(shrink)
			for c := range out {
				out[c] *= shrink
			}
		}
		*peak = top
	}
	total := float32(0)
	for j, x := range own {
		e := exp(x - top)
		own[j] = e
		total += e
	}
	*sum += float64(total)
}

// add1 adds the rows of m from row r on, weighted by p.
func add1(a, p []float32, m mat, r int) {
	for j, x := range p {
		row := m.row(r + j)[:len(a)]
		for c := range a {
			a[c] += x * row[c]
		}
	}
}
