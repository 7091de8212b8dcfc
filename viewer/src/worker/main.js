// The script of two of the page's workers, which share the codecs: by its name
// one owns the files and the decoder, the other reads the Parquet of a Segment.

import { serve as segment } from './segment-worker.js';
import { serve as decoder } from './worker.js';

if (self.name === 'segment') segment();
else decoder();
