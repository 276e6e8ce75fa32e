#!/bin/sh
# Makes the golden files of package probe and of probe/flac. It needs ffmpeg 5 or later with libsoxr and the reference encoder flac 1.4 or
# later, SoX and MKVToolNix (on Debian: apt install ffmpeg flac sox mkvtoolnix). Tests need none of them. Run it from the root of the repository:
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

# Containers: 25 ms of a tone in each codec and byte order that they have, mono at 16 kHz, so that nothing is mixed or resampled, and all samples that
# ffmpeg decodes from it. IMA ADPCM is decoded by SoX: see below.
# contain NAME.CONTAINER CODEC DECODER
contain() {
	ffmpeg -v error -y -f lavfi -i "aevalsrc=exprs=0.5*sin(2*PI*440*t)+0.3*sin(2*PI*1000*t):s=16000:d=0.025" \
		-fflags +bitexact -flags:a +bitexact -c:a "$2" "$golden/$1"
	case $3 in
	ffmpeg) ffmpeg -v error -y -i "$golden/$1" -f f32le "$golden/$1.f32" ;;
	sox) sox "$golden/$1" -t f32 "$golden/$1.f32" ;;
	esac
}
for codec in s8 s16be s24be s32be; do contain pcm_$codec.aiff pcm_$codec ffmpeg; done
for codec in s16le f32be f64be alaw mulaw; do contain pcm_$codec.aifc pcm_$codec ffmpeg; done
for codec in s8 s16be s24be s32be f32be f64be alaw mulaw; do contain pcm_$codec.au pcm_$codec ffmpeg; done
for codec in s8 s16be s16le s24be s24le s32be s32le f32be f32le f64be f64le alaw mulaw; do contain pcm_$codec.caf pcm_$codec ffmpeg; done
for codec in u8 s16le s24le s32le f32le f64le alaw mulaw; do contain pcm_$codec.w64 pcm_$codec ffmpeg; done
for codec in s8 u8 s16be s16le s24be s24le s32be s32le f32be f32le f64be f64le alaw mulaw; do contain pcm_$codec.mov pcm_$codec ffmpeg; done
contain pcm_s64le.wav pcm_s64le ffmpeg
contain adpcm_ms.wav adpcm_ms ffmpeg
contain adpcm_ms.w64 adpcm_ms ffmpeg
contain adpcm_ima_wav.wav adpcm_ima_wav sox
contain adpcm_ima_qt.aifc adpcm_ima_qt ffmpeg
contain adpcm_ima_qt.caf adpcm_ima_qt ffmpeg

# The same for codecs whose samples are compared at their own rate: speech, 0.3 s of it.
# speak CODEC.CONTAINER RATE OPTIONS...
speak() {
	file=$golden/$1 rate=$2
	shift 2
	ffmpeg -v error -y -ss 0.5 -t 0.3 -i models/digits/samples/nicolas-12-16k.flac -ar "$rate" -fflags +bitexact -flags:a +bitexact "$@" "$file"
	case $file in
	*opus*) ffmpeg -v error -y -c:a libopus -i "$file" -f f32le "$file.f32" ;; # ffmpeg's own decoder is less exact
	*) ffmpeg -v error -y -i "$file" -f f32le "$file.f32" ;;
	esac
}
speak gsm_ms.wav 8000 -c:a libgsm_ms
speak adpcm_g726.wav 8000 -c:a g726
speak adpcm_g722.wav 16000 -c:a g722
speak adpcm_yamaha.wav 16000 -c:a adpcm_yamaha
speak mp3.wav 16000 -c:a libmp3lame -b:a 32k -write_xing 0
speak mp3.caf 48000 -c:a libmp3lame -b:a 32k
speak alac.caf 16000 -c:a alac
speak opus.caf 48000 -c:a libopus -b:a 24k

# ADPCM: speech and a tone as bare blocks, and what decoders make of them as 16-bit samples. ffmpeg follows Microsoft's and Apple's descriptions to
# the bit, and SoX the IMA's.
adpcm=probe/adpcm/testdata
mkdir -p "$adpcm"
speech=models/digits/samples/nicolas-12-16k.flac
# coded NAME LAYOUT DECODER SUFFIX OPTIONS...
coded() {
	name=$1 layout=$2 decoder=$3 file=$tmp/$1.$4
	shift 4
	ffmpeg -v error -y -ss 0.5 -t 0.08 -i "$speech" -f lavfi -i 'sine=f=300:r=16000:d=0.08' \
		-filter_complex "[0:a][1:a]join=inputs=2,aformat=channel_layouts=$layout" -ar 11025 -fflags +bitexact -flags:a +bitexact "$@" "$file"
	ffmpeg -v error -y -i "$file" -map 0:a -c copy -f data "$adpcm/$name.coded"
	case $decoder in
	ffmpeg) ffmpeg -v error -y -i "$file" -f s16le "$adpcm/$name.s16" ;;
	sox) sox "$file" -t s16 "$adpcm/$name.s16" ;;
	esac
}
for layout in mono stereo; do
	coded ms_$layout $layout ffmpeg wav -c:a adpcm_ms -block_size 256
	coded ima_$layout $layout sox wav -c:a adpcm_ima_wav -block_size 256
	coded ima4_$layout $layout ffmpeg caf -c:a adpcm_ima_qt
done

# MP4: a quarter of a second of speech at 16 kHz in each codec and each arrangement of boxes, and the speech itself (mp4_speech.f32).
# boxed NAME.CONTAINER OPTIONS...
boxed() {
	name=$1
	shift
	ffmpeg -v error -y -i "$tmp/speech.wav" -f lavfi -i 'testsrc=size=32x32:rate=4:d=0.25' -fflags +bitexact -flags:a +bitexact -flags:v +bitexact \
		-map 0:a "$@" "$golden/mp4_$name"
}
ffmpeg -v error -y -ss 0.6 -t 0.25 -i models/digits/samples/nicolas-12-16k.flac -fflags +bitexact "$tmp/speech.wav"
ffmpeg -v error -y -i "$tmp/speech.wav" -f f32le "$golden/mp4_speech.f32"
fragments='-movflags +frag_keyframe+empty_moov -frag_duration 100000'
boxed aac.m4a -c:a aac -b:a 48k
boxed aac_fast.mov -c:a aac -b:a 48k -movflags +faststart
boxed aac_frag.mp4 -c:a aac -b:a 48k $fragments
boxed aac_dash.mp4 -c:a aac -b:a 48k -movflags +dash -frag_duration 100000
boxed aac_delay.mp4 -c:a aac -b:a 48k -movflags +frag_keyframe+empty_moov+delay_moov -frag_duration 100000
boxed aac_video.mp4 -c:a aac -b:a 48k -map 1:v -c:v mpeg4 -qscale 31
boxed aac_video_frag.mp4 -c:a aac -b:a 48k -map 1:v -c:v mpeg4 -qscale 31 $fragments
boxed aac_two.mp4 -c:a aac -b:a 48k -map 0:a -map 1:v -c:v mpeg4 -qscale 31
boxed aac_timecode.mov -c:a aac -b:a 48k -map 1:v -c:v mpeg4 -qscale 31 -timecode 01:00:00:00
ffmpeg -v error -y -ss 0.1 -i "$golden/mp4_aac.m4a" -c copy -fflags +bitexact "$golden/mp4_aac_cut.m4a"
boxed alac.m4a -c:a alac
boxed alac_frag.mov -c:a alac $fragments
boxed flac.mp4 -c:a flac -strict -2
boxed flac_frag.mp4 -c:a flac -strict -2 -movflags +dash -frag_duration 100000
boxed opus.mp4 -c:a libopus -b:a 24k -ar 48000
boxed opus_frag.mp4 -c:a libopus -b:a 24k -ar 48000 $fragments
boxed mp3.mp4 -c:a libmp3lame -b:a 32k
boxed mp3.mov -c:a libmp3lame -b:a 32k
boxed mp2.mp4 -c:a mp2 -b:a 64k
boxed vorbis.mp4 -c:a libvorbis -q:a 0
boxed ac3.mp4 -c:a ac3 -ar 48000 -b:a 64k
boxed eac3.mov -c:a eac3 -ar 48000 -b:a 64k

# Matroska, and the formats that ffmpeg reads whole: a quarter of a second of the same speech. How many sample frames each holds stands in the tests
# (probe/webm_test.go, probe/piped_test.go); it is what `ffmpeg -i FILE -map 0:a:0 -f f32le -` gives. mkvmerge makes files like other programs' than
# ffmpeg: with an index in front, with compressed packets, and in small clusters.
muxed() {
	name=$1
	shift
	boxed "$name" "$@"
	mv "$golden/mp4_$name" "$golden/$name"
}
muxed mkv_opus.webm -c:a libopus -b:a 24k -ar 48000
muxed mkv_opus_5p1.mkv -c:a libopus -b:a 64k -ar 48000 -ac 6 -mapping_family 1
muxed mkv_opus_live.webm -c:a libopus -b:a 24k -ar 48000 -live 1 -cluster_time_limit 100
muxed mkv_vorbis.webm -c:a libvorbis -q:a 0
muxed mkv_flac24.mkv -c:a flac -sample_fmt s32
muxed mkv_mp3.mkv -c:a libmp3lame -b:a 32k
muxed mkv_mp2.mkv -c:a mp2 -b:a 64k
muxed mkv_aac.mkv -c:a aac -b:a 48k
muxed mkv_aac_5p1.mkv -c:a aac -b:a 96k -ar 48000 -ac 6
muxed mkv_aac_video.mkv -c:a aac -b:a 48k -map 1:v -c:v mpeg4 -qscale 31
muxed mkv_alac.mkv -c:a alac
muxed mkv_ac3.mkv -c:a ac3 -ar 48000 -b:a 64k
muxed mkv_eac3_5p1.mkv -c:a eac3 -ar 48000 -ac 6 -b:a 192k
muxed mkv_gsm.mkv -c:a libgsm_ms -ar 8000
muxed mkv_adpcm.mkv -c:a adpcm_ms -block_size 256
muxed mkv_pcm24be.mka -c:a pcm_s24be -ar 8000
muxed mkv_pcmf32.mka -c:a pcm_f32le -ar 8000
muxed mkv_alaw.mka -c:a pcm_alaw -ar 8000
mkvmerge -q --no-date --deterministic 1 -o "$golden/mkv_mp3_mkvmerge.mkv" "$golden/mkv_mp3.mkv"
mkvmerge -q --no-date --deterministic 1 --compression 0:zlib -o "$golden/mkv_ac3_zlib.mkv" "$golden/mkv_ac3.mkv"
mkvmerge -q --no-date --deterministic 1 --cluster-length 100ms -o "$golden/mkv_opus_clusters.webm" -w "$golden/mkv_opus.webm"

muxed piped_wmav2.wma -c:a wmav2 -b:a 32k -ar 22050
muxed piped_video.wmv -c:a wmav1 -b:a 32k -ar 22050 -map 1:v -c:v wmv1 -qscale 31
muxed piped_stereo.wv -c:a wavpack -ac 2
muxed piped_video.avi -c:a libmp3lame -b:a 32k -map 1:v -c:v mpeg4 -qscale 31
muxed piped_silent.avi -an -map 1:v -c:v mpeg4 -qscale 31
muxed piped_aac.flv -c:a aac -b:a 48k -ar 44100
muxed piped_video.ts -c:a mp2 -b:a 64k -map 1:v -c:v mpeg2video -r 25 -qscale 31
muxed piped_ac3.m2ts -c:a ac3 -ar 48000 -b:a 64k -mpegts_m2ts_mode 1 -f mpegts
muxed piped_5p1.eac3 -c:a eac3 -ar 48000 -ac 6 -b:a 192k
muxed ac3_44k1.ac3 -c:a ac3 -ar 44100 -ac 2 -b:a 64k
