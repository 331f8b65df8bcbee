-- Runs that were queued together share pages, and one statement claims all of them. The claims write to no index only if
-- the new versions of all rows of a page fit on the page. A claim makes a row longer, because it adds the lease and its
-- owner. Before this migration the fillfactor was 60.
ALTER TABLE "Order_Header" SET (fillfactor = 40);
