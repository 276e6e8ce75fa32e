package flac

// crc8 is the checksum of a frame header: polynomial x^8+x^2+x+1, start 0 (RFC 9639, section 9.1.8).
func crc8(b []byte) uint8 {
	var c uint8
	for _, v := range b {
		c = crc8Table[c^v]
	}
	return c
}

// crc16 continues the checksum of a frame: polynomial x^16+x^15+x^2+1, start 0 (RFC 9639, section 9.3). Eight bytes are taken at once, each
// from the table for its distance to the end.
func crc16(c uint16, b []byte) uint16 {
	for ; len(b) >= 8; b = b[8:] {
		c = crc16Tables[7][b[0]^uint8(c>>8)] ^ crc16Tables[6][b[1]^uint8(c)] ^ crc16Tables[5][b[2]] ^ crc16Tables[4][b[3]] ^
			crc16Tables[3][b[4]] ^ crc16Tables[2][b[5]] ^ crc16Tables[1][b[6]] ^ crc16Tables[0][b[7]]
	}
	for _, v := range b {
		c = c<<8 ^ crc16Tables[0][uint8(c>>8)^v]
	}
	return c
}

var (
	crc8Table   = makeCRC8()
	crc16Tables = makeCRC16()
)

func makeCRC8() (t [256]uint8) {
	for i := range t {
		c := uint8(i)
		for range 8 {
			carry := c >> 7
			c = c<<1 ^ carry*0x07
		}
		t[i] = c
	}
	return t
}

// makeCRC16 gives in row d the checksum of a byte followed by d zero bytes.
func makeCRC16() (t [8][256]uint16) {
	for i := range t[0] {
		c := uint16(i) << 8
		for range 8 {
			carry := c >> 15
			c = c<<1 ^ carry*0x8005
		}
		t[0][i] = c
	}
	for d := 1; d < len(t); d++ {
		for i, c := range t[d-1] {
			t[d][i] = c<<8 ^ t[0][c>>8]
		}
	}
	return t
}
