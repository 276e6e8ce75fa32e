#!/bin/sh
# Makes the golden files of Ogg: small Ogg files of the reference encoders, and what ffmpeg decodes of them, with the reference decoder for Opus:
# its own delays speech by a part of a sample. It needs ffmpeg 5 or later with libopus and libvorbis, oggenc and opusenc (on Debian: apt
# install ffmpeg vorbis-tools opus-tools). Tests need none of them. Run it from the root of the repository:
#   tools/probe-golden/ogg.sh
#
# *.f32 are some sample frames (see decode) at the file's own rate, as interleaved little-endian float32.
set -eu

golden=probe/testdata/golden
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
quiet='ffmpeg -v error -y'

music='0.3*sin(2*PI*440*t*(1+0.1*t))+0.2*sin(2*PI*1500*t)+0.1*random(0)*lt(mod(t\,0.2)\,0.02)'
$quiet -f lavfi -i "aevalsrc=exprs=$music|0.3*sin(2*PI*330*t)+0.2*sin(2*PI*5000*t)*lt(mod(t\,0.1)\,0.03):s=44100:d=0.4" "$tmp/music.wav"
$quiet -i "$tmp/music.wav" -ar 48000 "$tmp/music48.wav"
$quiet -f lavfi -i "aevalsrc=exprs=0.3*sin(2*PI*300*t)|0.3*sin(2*PI*400*t)|0.3*sin(2*PI*500*t)|0.3*sin(2*PI*60*t)|0.3*sin(2*PI*700*t)|0.3*sin(2*PI*800*t):s=48000:c=5.1:d=0.2" "$tmp/six.wav"
$quiet -i probe/testdata/wav_speech_flite_16k.wav -t 0.5 -ar 48000 "$tmp/speech.wav"
$quiet -i "$tmp/speech.wav" -filter_complex '[0:a]apad=pad_dur=0.5,asplit[a][b];[a][b]concat=n=2:v=0:a=1' "$tmp/pauses.wav"

oggenc -Q --serial 1 -b 48 --managed -m 40 -M 48 -o "$golden/vorbis_managed.ogg" "$tmp/music.wav" # cuts packets off to keep its bit rate
oggenc -Q --serial 1 -q 10 -o "$golden/vorbis_q10.ogg" "$tmp/music.wav"
oggenc -Q --serial 1 -q 0 -o "$golden/vorbis_5p1.ogg" "$tmp/six.wav"
$quiet -i "$tmp/music.wav" -t 0.3 -c:a vorbis -strict -2 -page_duration 100000 -fflags +bitexact -flags:a +bitexact "$golden/vorbis_ffmpeg.ogg" # ffmpeg's own decoder gets this wrong
$quiet -i "$tmp/music.wav" -t 0.1 -c:a flac -sample_fmt s32 -fflags +bitexact -flags:a +bitexact "$golden/oggflac_s24_stereo.oga"

# opus NAME INPUT OPTIONS...: set-ctl-int 4016 is DTX; 11002 forces a mode
opus() {
	out=$1 in=$2
	shift 2
	opusenc --quiet --serial 1 "$@" "$in" "$golden/$out"
}
opus opus_dtx.opus "$tmp/pauses.wav" --bitrate 14 --speech --set-ctl-int 4016=1
opus opus_silk_60ms.opus "$tmp/speech.wav" --bitrate 12 --framesize 60
opus opus_hybrid.opus "$tmp/speech.wav" --bitrate 32 --speech
opus opus_celt_stereo.opus "$tmp/music48.wav" --bitrate 96 --music
opus opus_celt_2ms5.opus "$tmp/music48.wav" --bitrate 64 --framesize 2.5 --downmix-mono
opus opus_5p1.opus "$tmp/six.wav" --bitrate 96
$quiet -i "$tmp/speech.wav" -c:a libopus -b:a 24k -frame_duration 120 -application voip -fflags +bitexact -flags:a +bitexact "$golden/opus_120ms.opus"

# decode FILE OPTIONS...
decode() {
	f=$golden/$1
	shift
	$quiet "$@" -i "$f" -af "atrim=start_sample=$start:end_sample=$((start + frames))" -f f32le "$f.f32"
}
start=4000 frames=2000
decode vorbis_managed.ogg
decode vorbis_q10.ogg
decode vorbis_ffmpeg.ogg -c:a libvorbis # which gives 16 bits
for f in celt_stereo celt_2ms5; do decode opus_$f.opus -c:a libopus; done
frames=700
decode oggflac_s24_stereo.oga
decode vorbis_5p1.ogg
decode opus_5p1.opus -c:a libopus
start=12000 frames=2000 # loud speech
for f in silk_60ms hybrid 120ms; do decode opus_$f.opus -c:a libopus; done
start=60000 # the same after a pause
decode opus_dtx.opus -c:a libopus
