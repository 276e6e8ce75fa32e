#!/bin/sh
# Makes the golden files of package probe and of probe/flac. It needs ffmpeg 5 or later with libsoxr and the reference encoder flac 1.4 or
# later (on Debian: apt install ffmpeg flac). Tests need neither. Run it from the root of the repository:
#
#   tools/probe-golden/make.sh
#
# probe/flac/testdata/*.flac use what the format has: widths, channel modes, predictors, block sizes. Their STREAMINFO holds the MD5 of the
# samples as the reference encoder saw them, so that no other golden file is needed.
# probe/testdata/golden/*.wav are small inputs that the other test files lack; *.f32 are the first 4,000 samples of what ffmpeg decodes, mixes
# by the mean and resamples to 16 kHz with soxr at its highest quality, as little-endian float32.
set -eu

flacs=probe/flac/testdata
golden=probe/testdata/golden
mkdir -p "$flacs" "$golden"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

tone='0.6*sin(0.031*n)+0.25*sin(0.2*n)+0.04*(random(0)-0.5)'

# raw NAME FORMAT FRAMES EXPRESSION[|EXPRESSION...]: one expression per channel, at 8 kHz: the rate is set by the encoder
raw() {
	ffmpeg -v error -y -f lavfi -i "aevalsrc=exprs=$4:s=8000:d=1" -af "atrim=end_sample=$3" -f "$2" "$tmp/$1.raw"
}

# encode NAME RAW BITS CHANNELS RATE OPTIONS...
encode() {
	name=$1 input=$2 bits=$3 channels=$4 rate=$5
	shift 5
	flac --silent --force --no-padding --force-raw-format --endian=little --sign=signed \
		--bps="$bits" --channels="$channels" --sample-rate="$rate" "$@" -o "$flacs/$name.flac" "$tmp/$input.raw"
}

raw s8 s8 2000 "$tone"
raw s16 s16le 2000 "$tone"
raw s16x2 s16le 1500 "$tone|$tone+0.01*(random(1)-0.5)"
raw s16x8 s16le 600 "$tone|0.9*$tone|0.8*$tone|0.7*$tone|0.6*$tone|0.5*$tone|0.4*$tone|0"
raw s24x2 s24le 1000 "$tone|0.5*$tone"
raw s32x2 s32le 900 "$tone|0.5*$tone"
raw s32loud s32le 600 "if(lt(mod(n\,14)\,7)\,1\,-1)|if(lt(mod(n\,14)\,7)\,-1\,1)"
raw noise s16le 600 "2*random(0)-1"
raw steps s16le 1500 "floor(1000*sin(0.05*n)+9*random(0))*8/32768|floor(900*sin(0.05*n)+9*random(1))*32/32768"
raw silence s16le 1500 0

encode s8_mono s8 8 1 8000 -8
encode s16_fixed s16 16 1 16000 -2
encode s16_independent s16x2 16 2 44100 -5 --no-mid-side
encode s16_midside s16x2 16 2 32000 -5 -m
encode s16_adaptive s16x2 16 2 48000 -5 -M
encode s16_block16 s16x2 16 2 22050 -5 -b 16 --lax
encode s16_block1000 s16x2 16 2 37800 -5 -b 1000
encode s16_bigblock s16x2 16 2 7350 -5 -b 65535 --lax
encode s16_8channels s16x8 16 8 192000 -5
encode s16_wasted steps 16 2 44100 -5
encode s16_noise noise 16 1 12345 -8
encode s16_silence silence 16 1 96000 -5
encode s24_rice2 s24x2 24 2 24000 -8
encode s24_partitions s24x2 24 2 176400 -8 -e -p -r 0,8
encode s32_order32 s32x2 32 2 96000 --lax -l 32 -e -p
encode s32_loud s32loud 32 2 88200 -5

# golden inputs: kinds of samples that no handed file has
synth() {
	out=$1
	shift
	ffmpeg -v error -y -f lavfi -i "aevalsrc=exprs=0.5*sin(2*PI*440*t)+0.3*sin(2*PI*1000*t)|0.4*sin(2*PI*700*t):s=48000:d=0.1" \
		-fflags +bitexact -flags:a +bitexact "$@" "$golden/$out"
}
synth mulaw_8k_mono.wav -ar 8000 -ac 1 -c:a pcm_mulaw
synth f64_22050_stereo.wav -ar 22050 -c:a pcm_f64le
synth s24_12k_mono.wav -ar 12000 -ac 1 -c:a pcm_s24le
synth u8_32k_stereo.wav -ar 32000 -c:a pcm_u8
synth s32_44100_stereo.wav -c:a pcm_s32le -ar 44100
synth f32_96k_mono.wav -c:a pcm_f32le -ar 96000 -ac 1
synth s16_192k_mono.wav -c:a pcm_s16le -ar 192000 -ac 1

# decode NAME CHANNELS INPUT
decode() {
	case $2 in
	1) pan='pan=mono|c0=c0' ;;
	2) pan='pan=mono|c0=0.5*c0+0.5*c1' ;;
	6) pan='pan=mono|c0=1/6*c0+1/6*c1+1/6*c2+1/6*c3+1/6*c4+1/6*c5' ;;
	esac
	pan=$(printf %s "$pan" | sed 's#1/6#0.16666666666#g')
	ffmpeg -v error -y -i "$3" -filter_complex "aformat=sample_fmts=dblp,$pan,aresample=16000:resampler=soxr:precision=33:cutoff=0.95,atrim=end_sample=4000" \
		-f f32le "$golden/$1.f32"
}
for f in mulaw_8k_mono s24_12k_mono f32_96k_mono s16_192k_mono; do decode $f 1 "$golden/$f.wav"; done
for f in f64_22050_stereo u8_32k_stereo s32_44100_stereo; do decode $f 2 "$golden/$f.wav"; done
for f in wav_8k_mono_u8.wav wav_22050_mono_s16.wav wav_8k_alaw.wav rf64_16k.wav flac_11025_mono.flac \
	flac_id3v1_suffix.flac; do
	decode "$f" 1 "probe/testdata/$f"
done
for f in wav_11025_stereo_s16.wav flac_96k_stereo_s24.flac; do decode "$f" 2 "probe/testdata/$f"; done
decode flac_44k1_5p1.flac 6 probe/testdata/flac_44k1_5p1.flac
