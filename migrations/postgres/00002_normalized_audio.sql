-- What a device hears is stored beside the upload, with what a user should know about it.

-- +goose Up

ALTER TABLE jobs ADD COLUMN audio_key TEXT NOT NULL DEFAULT '';  -- blob of the normalized recording; jobs of older versions have none
ALTER TABLE jobs ADD COLUMN audio_warnings TEXT;                  -- JSON list of sentences
ALTER TABLE jobs ADD COLUMN channel BIGINT NOT NULL DEFAULT 0;    -- as asked for: from 1, 0 for the mix
