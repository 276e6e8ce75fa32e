#!/bin/sh
# Makes the recordings of the end-to-end test of formats (cmd/internal/cli/testdata/speech): one bundled sample, spoken by a person, in each format
# that people send. It needs ffmpeg 5 or later with libopus, libvorbis, libmp3lame and libx264 (Debian: apt install ffmpeg). The test needs it only
# for the formats that ffmpeg decodes. Run it from the root of the repository.
set -eu

in=models/digits/samples/theo-4-44k1-stereo.flac
out=cmd/internal/cli/testdata/speech
mkdir -p "$out"

# make NAME OPTIONS...
make() {
	name=$1
	shift
	ffmpeg -v error -y -i "$in" -map_metadata -1 -fflags +bitexact -flags:a +bitexact "$@" "$out/$name"
}

make opus.opus -ar 48000 -ac 1 -c:a libopus -b:a 24k
make voice.webm -ar 48000 -ac 1 -c:a libopus -b:a 24k
make vorbis.ogg -ar 16000 -ac 1 -c:a libvorbis -q:a 2
make flac.oga -ar 16000 -ac 1 -c:a flac
make vbr.mp3 -ar 22050 -ac 1 -c:a libmp3lame -q:a 5
make aac.m4a -ar 22050 -ac 1 -c:a aac -b:a 40k
make fragmented.mp4 -ar 22050 -ac 1 -c:a aac -b:a 40k -movflags frag_keyframe+empty_moov
make alac.m4a -ar 16000 -ac 1 -c:a alac
make adts.aac -ar 22050 -ac 1 -c:a aac -b:a 40k
make flac.mka -ar 16000 -ac 1 -c:a flac
make pcm.mov -ar 16000 -ac 1 -c:a pcm_s16be
make pcm.aiff -ar 16000 -ac 1
make pcm.caf -ar 16000 -ac 1 -c:a pcm_s16le
make pcm.au -ar 16000 -ac 1
make pcm.w64 -ar 16000 -ac 1
make ima.wav -ar 16000 -ac 1 -c:a adpcm_ima_wav
make ms.wav -ar 16000 -ac 1 -c:a adpcm_ms
make gsm.wav -ar 8000 -ac 1 -c:a libgsm_ms
make media.wma -ar 22050 -ac 1 -c:a wmav2 -b:a 32k
make stream.ts -ar 22050 -ac 1 -c:a aac -b:a 40k
ffmpeg -v error -y -f lavfi -i testsrc=s=64x48:r=5 -i "$in" -map_metadata -1 -fflags +bitexact -shortest -c:v libx264 -crf 40 \
	-c:a aac -ar 22050 -ac 1 -b:a 40k -movflags +faststart "$out/video.mp4"
