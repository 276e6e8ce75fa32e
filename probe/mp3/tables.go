package mp3

// The numbers of the standard that no formula gives. Tests hold them to what they must fulfill: complete codes, each value once, symmetry.

// codebook is a Huffman code for pairs of values (ISO 11172-3, table 3-B.7). Both strings go through the code words in their order as binary
// fractions, which with the lengths determines the words: it is complete.
type codebook struct {
	lengths string // of the words, in base 36
	values  string // two hexadecimal digits each
}

// codebooks by number. Those from 16 to 23, and from 24 to 31, differ only in the number of further bits. 0 is silence; 4 and 14 do not exist.
var codebooks = map[int]codebook{
	1:  {"3321", "11011000"},
	2:  {"665553331", "220212212011011000"},
	3:  {"665553222", "220212212010110100"},
	5:  {"8876777766663331", "33233231130330221221022011011000"},
	6:  {"7766655554443233", "33032332301331220212212001111000"},
	7:  {"aaaa99998899899887778888777765664331", "554554533544255215510534504333244214414004233203133130221221022011011000"},
	8:  {"bba9aa999889999888788888888666442332", "555445533544255205155134435033244214410440233213310330220220122111011000"},
	9:  {"998899888877788777766665566554443333", "554535535405442552155134435004244233401441233213310330220212212011011000"},
	10: {"bbbbbbaaaaaaabba99aa99aa9aa8899aa99aa888999999888888777766664331", "77677657756647745665377346555463277264077062453506534417713626255215513443166160055024423304144140233203133130221221022011011000"},
	11: {"aaaaaaabbaa999aaaa8899788888999987887788899888888776677654553332", "77677675664774575556653773464554355327726407711770366360442552051562260616615134504333244214410440233213310330222112022011011000"},
	12: {"aa99999998899888888998888899777888888777788777666677655544554333", "77677657756647746556377355277246641771077036634554440605266261166035532552155134435004244214334123324003301331221221022000110110"},
	13: {
		"jjihgggggggggghhffggffffffffffggfggeeffffeeeeeeeeeeeffedeeddeedeedeedeeddeecccddddddcddccddddddddddddccddccccddddcddcbccccccccbbbbcc" +
			"bbccbccccbbccbccbccbccaaabbbbbbbbaaaabbabbabbbbaabbaabbbbbb99aaaaabb999aa99aaaaaaaaaa8999999aa999889999998788887777766664431",
		"fefcfdedffefdfeecfdebffbcedcafe9ecddfacdbeeb9ff9eabddb8ff8ccae9e8e7f7ef7daadbccbf66fe85f9dd9f5e7acbb4ff4cae6f33f8dd82ff26e9c0fc95eab" +
			"7dd74ec8d63eb99baa1ff1f0bae5e48c6de3e22e0e1ee1e05dd57cc74d8bb8d49aa96cc63dd37b2dd21db75cc5997ac3a7974bd10dd08aa84cc46bb63c2cc25bb589" +
			"1cc1980cc0b46aa6793bb3885a2ba569a47887947776b21bb10bb0964a3aa359952aa21aa10a68a08649933958856729925775388366477456657319910990488472" +
			"46642882183727177155077036634554266235810880166106605344255205155134435024423314410440233213310330221221022011011000",
	},
	15: {
		"ddddcddddddcddcccccccccccccccccccccccddbbccccbbbbbbccbbbbbbbbccbbbbbbbbbbbbbbbbbbbbbbbbbccbbbbbbabbbbbbaabbaaaabbaaaaaaabbaaaaabb9aa" +
			"aaaaaaaaaa9aaaa9aa9aaaaaaaa9999999aa999999aa99999989999999999888899999999888888998888888998788777788777776776677666555553443",
		"ffeffedfeefdcffcdeedbffbceecddaffabeebcddc9ff9eabddb8ff8cc9ee97ff7addabc6fae0fcbf68ee85f9df57ee7accabbd98d4ff43ff3d8e62ff26ef01ff19c" +
			"c95eabbae57dd74ee48cc83e6dd6e39bb92eaae21ee10ee05dd57cc74d8bd4b89aa96cc63dd3d22d0d1d7bb7d15cd0c58aa84cc46bb6990c3cc37aa7a6c00bc22c5b" +
			"b51c8998c14bb46a3b79b397882b5ab2a51bb1b069964aa478873aa359952aa21aa10aa0688649943993770958852967769291199048845775388366472882188174" +
			"08805665377346277264175571077036634554266216066035615344255215510550344324423341140423324003133130221221022011011000",
	},
	16: {
		"bbbbbbbbabbbbaaaaa8aa9999aghhffggeffeeffeeffffeffed89988deeeeeeeeeeddeeeedeedddeeeeddeedeecddddddddddddddcddddddcddccddbcccccccddbcc" +
			"ccbccccccccbccbbbbccccccccbccbccbccbccbaabbbbbbaabbaabbbbbbbbabbaaabbaabbaabba99aaaaaa999aa9aa998999999998899887788766664431",
		"effedffdcffcbffbaffa9ff9f88f7ff76ff6ff5ff54ff4f3f03fceecdddee9ead9eeedebbecddcdbaeccadda7eaccac97d5ebdf22f0f1ff19ebccb8ee89de7bb8dd8" +
			"6ee69cabbae5d74ee48cc83e6dd69bb9aae1d4b8a97bb7d0e30ee05dd57cc74d8b9a6cc63d5cc50d8aa8994cb67a3c5b891cc09879e22e1ed32dd2d13b97881dc46b" +
			"c3a72cc2b5c10c4bb46aa6b35aa52bb21bb10bb069964aa47887a33a592a9568a1867794495767a21a0aa03993588529927609199190488475388366288247741881" +
			"80085637736546277264550717717036634554266216610660533544255251150534435024423314410440233213310330221221022011011000",
	},
	24: {
		"888888887887788777777777777889bbbbbbbbbbbbbbbbbbbbbbbbbbbb4bbbbccbabbaaaabbaaaabbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbaaaaaaaaaa" +
			"aaabbabba9aaaabba99aa9aaaa99aa999999999999999999999999999999999999aa999aa899888888888888899888888997887777788776677655664444",
		"effedffdcffcbffbfaaf9ff9f88f7ff76ff65ff54ff43ff32ff2f11ff00feedeedceecddbeebcddcaeeabddbcc9ee9addabccb8ee89dd97ee7acffcabb8dd80ee00d" +
			"e66e9cc95ebae5ab7dd7e48cc84e2e3e6dd6e39bb9aae21ee15dd57cc74d8bb8d49aa96cc63dd32dd21d7bb7d15cc58aa8994cc46bb6d00c3cc37aa72cc25bb51c89" +
			"98c14bc00b3bb00a1ab46aa67997a00990b3882b5ab2a51bb16996a44a78873aa359952aa2a168867749943993588529677692199148845775388366288218477481" +
			"08805665170770733727724664557136634554266216610660355344255215055051344324423314410440233213310330221221022011011000",
	},
}

// quadbooks are the codes for four values of which none is beyond 1, one hexadecimal digit each.
var quadbooks = [2]codebook{
	{"6666665555544441", "bfde75963ac21480"},
	{"4444444444444444", "fedcba9876543210"},
}

// extraBits says how many bits follow for values from 15 on, by codebook (linbits).
var extraBits = [32]uint8{16: 1, 2, 3, 4, 6, 8, 10, 13, 4, 5, 6, 7, 8, 9, 11, 13}

// prototype is the first half and the middle of the synthesis filter, in 1/65536. The window of the standard (table 3-B.3) is this, mirrored, with
// every other stretch of 64 negated.
var prototype = [257]int32{
	0, -1, -1, -1, -1, -1, -1, -2, -2, -2, -2, -3, -3, -4, -4, -5,
	-5, -6, -7, -7, -8, -9, -10, -11, -13, -14, -16, -17, -19, -21, -24, -26,
	-29, -31, -35, -38, -41, -45, -49, -53, -58, -63, -68, -73, -79, -85, -91, -97,
	-104, -111, -117, -125, -132, -139, -147, -154, -161, -169, -176, -183, -190, -196, -202, -208,
	-213, -218, -222, -225, -227, -228, -228, -227, -224, -221, -215, -208, -200, -189, -177, -163,
	-146, -127, -106, -83, -57, -29, 2, 36, 72, 111, 153, 197, 244, 294, 347, 401,
	459, 519, 581, 645, 711, 779, 848, 919, 991, 1064, 1137, 1210, 1283, 1356, 1428, 1498,
	1567, 1634, 1698, 1759, 1817, 1870, 1919, 1962, 2001, 2032, 2057, 2075, 2085, 2087, 2080, 2063,
	2037, 2000, 1952, 1893, 1822, 1739, 1644, 1535, 1414, 1280, 1131, 970, 794, 605, 402, 185,
	-45, -288, -545, -814, -1095, -1388, -1692, -2006, -2330, -2663, -3004, -3351, -3705, -4063, -4425, -4788,
	-5153, -5517, -5879, -6237, -6589, -6935, -7271, -7597, -7910, -8209, -8491, -8755, -8998, -9219, -9416, -9585,
	-9727, -9838, -9916, -9959, -9966, -9935, -9863, -9750, -9592, -9389, -9139, -8840, -8492, -8092, -7640, -7134,
	-6574, -5959, -5288, -4561, -3776, -2935, -2037, -1082, -70, 998, 2122, 3300, 4533, 5818, 7154, 8540,
	9975, 11455, 12980, 14548, 16155, 17799, 19478, 21189, 22929, 24694, 26482, 28289, 30112, 31947, 33791, 35640,
	37489, 39336, 41176, 43006, 44821, 46617, 48390, 50137, 51853, 53534, 55178, 56778, 58333, 59838, 61289, 62684,
	64019, 65290, 66494, 67629, 68692, 69679, 70590, 71420, 72169, 72835, 73415, 73908, 74313, 74630, 74856, 74992,
	75038,
}

// longWidths and shortWidths are the scalefactor bands' numbers of lines by rate: 44.1, 48, 32 kHz, the same halved, and halved again
// (ISO 11172-3, table 3-B.8; ISO 13818-3, table B.2). The last band has no scalefactor.
var longWidths = [9][22]uint8{
	{4, 4, 4, 4, 4, 4, 6, 6, 8, 8, 10, 12, 16, 20, 24, 28, 34, 42, 50, 54, 76, 158},
	{4, 4, 4, 4, 4, 4, 6, 6, 6, 8, 10, 12, 16, 18, 22, 28, 34, 40, 46, 54, 54, 192},
	{4, 4, 4, 4, 4, 4, 6, 6, 8, 10, 12, 16, 20, 24, 30, 38, 46, 56, 68, 84, 102, 26},
	{6, 6, 6, 6, 6, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 38, 46, 52, 60, 68, 58, 54},
	{6, 6, 6, 6, 6, 6, 8, 10, 12, 14, 16, 18, 22, 26, 32, 38, 46, 54, 62, 70, 76, 36},
	{6, 6, 6, 6, 6, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 38, 46, 52, 60, 68, 58, 54},
	{6, 6, 6, 6, 6, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 38, 46, 52, 60, 68, 58, 54},
	{6, 6, 6, 6, 6, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 38, 46, 52, 60, 68, 58, 54},
	{12, 12, 12, 12, 12, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 76, 90, 2, 2, 2, 2, 2},
}

var shortWidths = [9][13]uint8{
	{4, 4, 4, 4, 6, 8, 10, 12, 14, 18, 22, 30, 56},
	{4, 4, 4, 4, 6, 6, 10, 12, 14, 16, 20, 26, 66},
	{4, 4, 4, 4, 6, 8, 12, 16, 20, 26, 34, 42, 12},
	{4, 4, 4, 6, 6, 8, 10, 14, 18, 26, 32, 42, 18},
	{4, 4, 4, 6, 8, 10, 12, 14, 18, 24, 32, 44, 12},
	{4, 4, 4, 6, 8, 10, 12, 14, 18, 24, 30, 40, 18},
	{4, 4, 4, 6, 8, 10, 12, 14, 18, 24, 30, 40, 18},
	{4, 4, 4, 6, 8, 10, 12, 14, 18, 24, 30, 40, 18},
	{8, 8, 8, 12, 16, 20, 24, 28, 36, 2, 2, 2, 26},
}

// preemphasis is added to the scalefactors of long blocks where a granule asks for it (table 3-B.6).
var preemphasis = [22]uint8{11: 1, 1, 1, 1, 2, 2, 3, 3, 3, 2}

// How many bits the scalefactors of MPEG-1 have, in the lower and the upper bands (section 2.4.2.7).
var (
	lowerBits = [16]uint8{0, 0, 0, 0, 3, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4}
	upperBits = [16]uint8{0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 2, 3}
)

// scalefactorCounts are the numbers of scalefactors with the same number of bits for MPEG-2, by how these are coded and by the kind of blocks:
// long, short, mixed (ISO 13818-3, section 2.4.3.2). The last three codings are for the right channel with intensity stereo.
var scalefactorCounts = [6][3][4]uint8{
	{{6, 5, 5, 5}, {9, 9, 9, 9}, {6, 9, 9, 9}},
	{{6, 5, 7, 3}, {9, 9, 12, 6}, {6, 9, 12, 6}},
	{{11, 10, 0, 0}, {18, 18, 0, 0}, {15, 18, 0, 0}},
	{{7, 7, 7, 0}, {12, 12, 12, 0}, {6, 15, 12, 0}},
	{{6, 6, 6, 3}, {12, 9, 9, 6}, {6, 12, 9, 6}},
	{{8, 8, 5, 0}, {15, 12, 9, 0}, {6, 18, 9, 0}},
}
