package cpu

// The kernels below do nearly all of the work. Each slice is cut to the length of the one that is ranged over, so that the compiler
// removes the bounds checks, and no kernel keeps more than four sums: with eight, the compiler spills them to the stack, and the
// larger tile runs at half the speed of the smaller one (BenchmarkLinear).

// dot4 multiplies a row with a panel of four outputs.
func dot4(a []float32, panel [][4]float32) (s0, s1, s2, s3 float32) {
	a = a[:len(panel)]
	for k := range panel {
		w := &panel[k]
		x := a[k]
		s0 += x * w[0]
		s1 += x * w[1]
		s2 += x * w[2]
		s3 += x * w[3]
	}
	return
}

// dotRows writes into s and u the dot products of a and b with the rows of m from row r on, one per element of s.
func dotRows(s, u, a, b []float32, m mat, r int) {
	u = u[:len(s)]
	n := len(a)
	j := 0
	for ; j+2 <= len(s); j += 2 {
		rows := m.data[(r+j)*m.step:]
		s[j], s[j+1], u[j], u[j+1] = dot2x2(a, b, rows[:n], rows[m.step:m.step+n])
	}
	if j < len(s) {
		s[j], u[j] = dot2x1(a, b, m.data[(r+j)*m.step:][:n])
	}
}

// dot2x2 multiplies two rows with two others.
func dot2x2(a, b, r0, r1 []float32) (s0, s1, u0, u1 float32) {
	n := len(a)
	b, r0, r1 = b[:n], r0[:n], r1[:n]
	for k, x := range a {
		y := b[k]
		w := r0[k]
		s0 += x * w
		u0 += y * w
		w = r1[k]
		s1 += x * w
		u1 += y * w
	}
	return
}

func dot2x1(a, b, r []float32) (s, u float32) {
	b, r = b[:len(a)], r[:len(a)]
	for k, x := range a {
		s += x * r[k]
		u += b[k] * r[k]
	}
	return
}

// addRows adds to a and b the rows of m from row r on, weighted by p and q.
func addRows(a, b, p, q []float32, m mat, r int) {
	q = q[:len(p)]
	n := len(a)
	j := 0
	for ; j+4 <= len(p); j += 4 {
		rows := m.data[(r+j)*m.step:]
		add2x4(a, b, (*[4]float32)(p[j:]), (*[4]float32)(q[j:]),
			rows[:n], rows[m.step:m.step+n], rows[2*m.step:2*m.step+n], rows[3*m.step:3*m.step+n])
	}
	for ; j < len(p); j++ {
		add2x1(a, b, p[j], q[j], m.data[(r+j)*m.step:][:n])
	}
}

// add2x4 adds four rows to two.
func add2x4(a, b []float32, p, q *[4]float32, r0, r1, r2, r3 []float32) {
	n := len(a)
	b, r0, r1, r2, r3 = b[:n], r0[:n], r1[:n], r2[:n], r3[:n]
	p0, p1, p2, p3 := p[0], p[1], p[2], p[3]
	q0, q1, q2, q3 := q[0], q[1], q[2], q[3]
	for k := range a {
		x0, x1, x2, x3 := r0[k], r1[k], r2[k], r3[k]
		a[k] += p0*x0 + p1*x1 + (p2*x2 + p3*x3)
		b[k] += q0*x0 + q1*x1 + (q2*x2 + q3*x3)
	}
}

func add2x1(a, b []float32, p, q float32, r []float32) {
	b, r = b[:len(a)], r[:len(a)]
	for k := range a {
		a[k] += p * r[k]
		b[k] += q * r[k]
	}
}
