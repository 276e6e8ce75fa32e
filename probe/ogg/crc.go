package ogg

// checksum is that of a page, whose own field counts as zero: polynomial 04C11DB7, start 0, not reflected (RFC 3533, section 6). Eight bytes are taken at
// once, each from the table for its distance to the end.
func checksum(page []byte) uint32 {
	c := update(0, page[:22])
	c = update(c, []byte{0, 0, 0, 0})
	return update(c, page[26:])
}

func update(c uint32, b []byte) uint32 {
	for ; len(b) >= 8; b = b[8:] {
		c = tables[7][b[0]^uint8(c>>24)] ^ tables[6][b[1]^uint8(c>>16)] ^ tables[5][b[2]^uint8(c>>8)] ^ tables[4][b[3]^uint8(c)] ^
			tables[3][b[4]] ^ tables[2][b[5]] ^ tables[1][b[6]] ^ tables[0][b[7]]
	}
	for _, v := range b {
		c = c<<8 ^ tables[0][uint8(c>>24)^v]
	}
	return c
}

// tables has in row d the checksum of a byte followed by d zero bytes.
var tables = func() (t [8][256]uint32) {
	for i := range t[0] {
		c := uint32(i) << 24
		for range 8 {
			carry := c >> 31
			c = c<<1 ^ carry*0x04C11DB7
		}
		t[0][i] = c
	}
	for d := 1; d < len(t); d++ {
		for i, c := range t[d-1] {
			t[d][i] = c<<8 ^ t[0][c>>24]
		}
	}
	return t
}()
