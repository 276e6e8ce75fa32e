#!/bin/sh
# Makes the golden files of probe/mp3, and those of package probe for MPEG audio and ADTS. It needs ffmpeg 5 or later with libsoxr, LAME and mpg123
# (on Debian: apt install ffmpeg lame mpg123) and Go. Tests need none but Go. Run it from the root of the repository:
#
#   tools/probe-golden/mp3.sh
#
# probe/mp3/testdata/lame_*.mp3 are streams without tags. The *.f32 are every 29th sample, interleaved, of what ffmpeg's float decoder makes of
# them and of the random streams of the tests (which the tests make themselves), as little-endian float32. mpg123 takes its place
# where ffmpeg 5 cannot be believed: it has a scalefactor band of 24 kHz wrong by two lines, and does not know free format.
set -eu

streams=probe/mp3/testdata
golden=probe/testdata/golden
mkdir -p "$streams"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# thin NAME: keeps every 29th sample, the first of 29 channels; what is left over at the end is no matter
thin() {
	ffmpeg -v quiet -y -f f32le -ar 8000 -ac 29 -i "$tmp/$1.f32" -af 'pan=mono|c0=c0' -f f32le "$streams/$1.f32"
}

left='0.3*sin(2*PI*440*t)+0.2*sin(2*PI*(300+500*t)*t)+0.05*(random(0)-0.5)+if(lt(mod(t\,0.15)\,0.01)\,0.4*(random(1)-0.5)\,0)'
right='0.25*sin(2*PI*440*t)+0.2*sin(2*PI*(310+500*t)*t)+0.05*(random(2)-0.5)+if(lt(mod(t\,0.18)\,0.01)\,0.4*(random(3)-0.5)\,0)'

# encode NAME RATE CHANNELS DECODER OPTIONS...
encode() {
	name=lame_$1 rate=$2 channels=$3 decoder=$4
	shift 4
	case $channels in 1) exprs=$left ;; 2) exprs="$left|$right" ;; esac
	ffmpeg -v error -y -f lavfi -i "aevalsrc=exprs=$exprs:s=$rate:d=0.35" -c:a pcm_s16le "$tmp/in.wav"
	lame --quiet -t "$@" "$tmp/in.wav" "$streams/$name.mp3"
	case $decoder in
	ffmpeg) ffmpeg -v error -y -i "$streams/$name.mp3" -f f32le "$tmp/$name.f32" ;;
	mpg123) mpg123 -q --no-gapless -e f32 -s "$streams/$name.mp3" >"$tmp/$name.f32" ;;
	esac
	thin "$name"
}
encode 44k_joint 44100 2 ffmpeg -b 128 -m j
encode 44k_vbr 44100 2 ffmpeg -V 4
encode 48k_abr 48000 2 ffmpeg --abr 150
encode 32k_crc 32000 1 ffmpeg -b 64 -p
encode 24k_joint 24000 2 mpg123 -b 64 -m j
encode 22k_mono 22050 1 ffmpeg -V 5
encode 16k_joint 16000 2 ffmpeg -b 48 -m j
encode 12k_mono 12000 1 ffmpeg -b 24
encode 11k_stereo 11025 2 ffmpeg -b 64 -m s
encode 8k_mono 8000 1 ffmpeg -b 8
encode free 32000 2 mpg123 --freeformat -b 150

go test -count=1 -run '^TestWriteStreams$' ./probe/mp3 -args -streams "$tmp"
for f in "$tmp"/mpeg*.mp3; do
	name=$(basename "$f" .mp3)
	ffmpeg -v error -y -i "$f" -f f32le "$tmp/$name.f32"
	thin "$name"
done

# Whole files, with what is not to be heard taken off: the first 4,000 samples, mixed and resampled as in make.sh.
decode() {
	case $2 in
	1) pan='pan=mono|c0=c0' ;;
	2) pan='pan=mono|c0=0.5*c0+0.5*c1' ;;
	esac
	ffmpeg -v error -y -i "probe/testdata/$1" -filter_complex \
		"aformat=sample_fmts=dblp,$pan,aresample=16000:resampler=soxr:precision=33:cutoff=0.95,atrim=end_sample=4000" -f f32le "$golden/$1.f32"
}
decode mp3_cbr_44k1_stereo.mp3 2
decode mp3_cbr_22050_mono.mp3 1
decode mp3_cbr_8k_mono.mp3 1

# small MPEG Layer II and ADTS
ffmpeg -v error -y -f lavfi -i 'aevalsrc=exprs=0.4*sin(2*PI*440*t):s=32000:d=0.2' -fflags +bitexact -flags:a +bitexact -c:a mp2 -b:a 32k "$golden/layer2.mp2"
ffmpeg -v error -y -f lavfi -i 'aevalsrc=exprs=0.4*sin(2*PI*440*t):s=16000:d=0.4' -fflags +bitexact -flags:a +bitexact -c:a aac -b:a 24k "$golden/tone.aac"
