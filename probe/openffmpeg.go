package probe

import (
	"context"

	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// openFFmpeg lets ffmpeg decode a stream.
func openFFmpeg(_ context.Context, _ *ffmpeg.Command, st stream) (sampleReader, error) {
	return nil, unsupported("%s is not supported yet.", st.codec.title)
}
